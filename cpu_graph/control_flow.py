"""torch.cond and torch.while_loop: as Python's, or as conditional nodes where a capture asks for
them.

torch compiles both before it runs them. Here they are called as they are.
"""

from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from cpu_graph.errors import NotModelled

MODE = "CUDAGraphCaptureControlFlowOpDispatchMode"


def nodes_module(device):
    """torch's module that makes conditional nodes, if a capture is under way in its mode."""
    if not device.capturing():
        return None
    modes = [mode for mode in _get_current_dispatch_mode_stack() if type(mode).__name__ == MODE]
    if not modes:
        return None
    from torch._higher_order_ops import cudagraph_conditional_nodes

    return cudagraph_conditional_nodes


def cond(device):
    def cond(pred, true_fn, false_fn, operands=()):
        nodes = nodes_module(device)
        if nodes:
            if not hasattr(nodes, "if_else_node"):
                raise NotModelled(
                    "torch.cond in a capture is not modelled for this version of torch."
                )
            return nodes.if_else_node(pred, true_fn, false_fn, operands)
        return true_fn(*operands) if pred else false_fn(*operands)

    return cond


def while_loop(device):
    def while_loop(cond_fn, body_fn, carried_inputs):
        nodes = nodes_module(device)
        if nodes:
            if not hasattr(nodes, "while_loop_node"):
                raise NotModelled(
                    "torch.while_loop in a capture is not modelled for this version of torch."
                )
            return nodes.while_loop_node(cond_fn, body_fn, carried_inputs, ())
        while cond_fn(*carried_inputs):
            carried_inputs = body_fn(*carried_inputs)
        return carried_inputs

    return while_loop
