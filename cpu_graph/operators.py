"""What the stand-in does with an operator: run it, record it, or refuse it as a GPU would."""

from functools import cache

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from cpu_graph.errors import INVALIDATED, PAGEABLE, PER_CAPTURE, TWO_DEVICES, NotModelled
from cpu_graph.order import HOST
from cpu_graph.shapes import not_computed
from cpu_graph.trees import tensors_in

aten = torch.ops.aten
INDEXING = {aten.index.Tensor, aten.index_put_.default, aten.index_put.default, aten._index_put_impl_.default}
COPIES = {aten.copy_.default, aten._to_copy.default, aten.clone.default}
MOVED = {*(getattr(aten.set_, name) for name in aten.set_.overloads()), aten.resize_.default}


@cache
def makes(operator):
    """Whether an operator is told on which device to make its result."""
    return operator is aten.clone.default or any(argument.name == "device" for argument in operator._schema.arguments)


class Operators(TorchDispatchMode):
    """Sees every operator, those of backward passes too."""

    def __init__(self, device):
        super().__init__()
        self.device = device

    @classmethod
    def _should_skip_dynamo(cls):  # else torch._dynamo is imported, which takes seconds
        return False

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        with torch._C.DisableTorchFunction():
            if operator.is_view or operator.namespace == "profiler":
                return operator(*args, **(kwargs or {}))
            return dispatch(self.device, operator, args, kwargs or {})


def dispatch(device, operator, args, kwargs):
    placed = [(tensor, device.kind(tensor)) for tensor in tensors_in(args, kwargs)]
    kinds = {kind for _, kind in placed}
    on_gpu = "cuda" in kinds
    kind = "cuda" if on_gpu else "cpu"
    if device.want and makes(operator) and (operator is not aten.clone.default or device.crossing):
        kind = device.want
    if not on_gpu and kind != "cuda":
        if "pinned" in kinds or kind == "pinned":
            return device.execute(operator, args, kwargs, kind, HOST)
        return operator(*args, **kwargs)
    if operator in MOVED:
        raise NotModelled(f"{operator.name()} on a CUDA tensor is not modelled.")
    operator, args = without_mask(operator, args)
    return launch(device, operator, args, kwargs, placed, kind)


def launch(device, operator, args, kwargs, placed, kind):
    """Launch an operator of the GPU's, or record it."""
    blocking = waits(device, operator, args, kwargs, placed, kind)
    generator, kwargs = draw(device, operator, kwargs)
    if not device.capturing():
        device.counts["operators"] += 1
        result = device.execute(operator, args, kwargs, kind, device.stream, generator)
        if blocking:
            device.order.wait(HOST, dict(device.order.clocks[device.stream]))
        return result
    if device.capture.lost:
        if PER_CAPTURE and device.capture.lost == "freed":
            raise RuntimeError(INVALIDATED)
        device.refuse(901)
    outputs = record(device, operator, args, kwargs, kind, generator)
    if blocking:
        device.refuse(900)
    return outputs


def record(device, operator, args, kwargs, kind, draws):
    def allocate(shape, stride, dtype):
        return device.allocate(shape, stride, dtype, kind)

    try:
        outputs = not_computed(operator, args, kwargs, allocate) if operator._schema.returns else None
    except NotImplementedError as error:
        raise NotModelled(f"{operator.name()} in a capture is not modelled: it has no shape function.") from error
    device.capture.add(device.node(operator, args, kwargs, outputs, draws).viewed())
    return outputs


def waits(device, operator, args, kwargs, placed, kind):
    """Whether the host waits for this operator; raises what a capture refuses."""
    if reads_values(operator, args, kwargs):
        if device.capture:
            device.refuse(900)
        return True
    ordinary, kinds = [tensor for tensor, here in placed if here == "cpu"], {here for _, here in placed}
    copies = operator in COPIES and (operator is aten.copy_.default or kinds != {kind})
    if not copies and "cuda" not in kinds:
        return False  # only shapes are taken from the others
    if not copies:
        ordinary = [tensor for tensor in ordinary if tensor.dim()]
    if ordinary and not copies and operator not in INDEXING:
        raise RuntimeError(TWO_DEVICES)
    if ordinary or (copies and kind == "cpu"):
        if device.capturing():
            raise RuntimeError(PAGEABLE)
        return True
    non_blocking = (
        device.non_blocking or kwargs.get("non_blocking") or (operator is aten.copy_.default and any(args[2:]))
    )
    return copies and len(kinds | {kind}) > 1 and not non_blocking


def reads_values(operator, args, kwargs):
    """Whether the host must know values before it can go on."""
    if operator in INDEXING:
        return any(index is not None and index.dtype in (torch.bool, torch.uint8) for index in args[1])
    if operator is aten.repeat_interleave.Tensor:
        return kwargs.get("output_size") is None
    return shaped_by_values(operator)


@cache
def shaped_by_values(operator):
    return bool({torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape} & set(operator.tags))


def without_mask(operator, args):
    """x[mask] = number is ``masked_fill_`` on a GPU."""
    if operator is not aten.index_put_.default or len(args[1]) > 1 or any(args[3:]):
        return operator, args
    (mask,), value = args[1:3]
    filled = mask.dtype is torch.bool and value.dim() == 0
    return (aten.masked_fill_.Tensor, (args[0], mask, value)) if filled else (operator, args)


def draw(device, operator, kwargs):
    """The generator that an operator draws from, as a node holds it, and the arguments without it."""
    if torch.Tag.nondeterministic_seeded not in operator.tags:
        return None, kwargs
    given = device.generator if kwargs.get("generator") else None  # Python's object, which operators do not get
    generator = given or torch.cuda.default_generators[0]
    if generator.device.type != "cuda":
        raise RuntimeError("Expected a 'cuda' device type for generator but found 'cpu'")
    return generator.draws(), kwargs | ({"generator": None} if "generator" in kwargs else {})
