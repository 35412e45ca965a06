"""torch.cond and torch.while_loop: as Python's, or as conditional nodes where a capture asks for
them.

torch compiles both before it runs them. Here they are called as they are.
"""

from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from cpu_graph.errors import NotModelled

MODE = "CUDAGraphCaptureControlFlowOpDispatchMode"


def node_maker(device, name, called):
    """torch's function that makes conditional nodes, if a capture is under way in its mode."""
    modes = [type(mode).__name__ for mode in _get_current_dispatch_mode_stack()]
    if not device.capturing() or MODE not in modes:
        return None
    from torch._higher_order_ops import cudagraph_conditional_nodes

    if not hasattr(cudagraph_conditional_nodes, name):
        raise NotModelled(f"{called} in a capture is not modelled for this version of torch.")
    return getattr(cudagraph_conditional_nodes, name)


def make_cond(device):
    def cond(pred, true_fn, false_fn, operands=()):
        if make_nodes := node_maker(device, "if_else_node", "torch.cond"):
            return make_nodes(pred, true_fn, false_fn, operands)
        return true_fn(*operands) if pred else false_fn(*operands)

    return cond


def make_while_loop(device):
    def while_loop(cond_fn, body_fn, carried_inputs):
        if make_nodes := node_maker(device, "while_loop_node", "torch.while_loop"):
            return make_nodes(cond_fn, body_fn, carried_inputs, ())
        while cond_fn(*carried_inputs):
            carried_inputs = body_fn(*carried_inputs)
        return carried_inputs

    return while_loop
