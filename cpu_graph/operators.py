"""What the stand-in does with an operator: run it, record it, or refuse it as a GPU would."""

from functools import cache, partial

import torch
from torch._C import _get_dispatch_mode, _TorchDispatchModeKey
from torch.utils._python_dispatch import TorchDispatchMode

from cpu_graph import errors, tables
from cpu_graph.callbacks import call_python_kernel, has_python_kernel
from cpu_graph.errors import NotModelled, is_refusal, torch_error
from cpu_graph.nodes import is_unfilled_factory, name_of
from cpu_graph.order import HOST
from cpu_graph.shapes import allocate_uncomputed
from cpu_graph.trees import tensors_in

aten = torch.ops.aten
ON_CPU = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)
SHAPED = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}  # by values
TRACING = _TorchDispatchModeKey.FAKE, _TorchDispatchModeKey.PROXY


@cache
def takes_device(operator):
    """Whether an operator is told on which device to make its result."""
    named = any(argument.name == "device" for argument in operator._schema.arguments)
    return named or operator is aten.clone.default


@cache
def is_composite(operator):
    """Whether torch makes it of other operators alone: in inference mode it gets here as it is."""
    name = operator.name()
    return operator._can_decompose() and not any(
        torch._C._dispatch_has_kernel_for_dispatch_key(name, key)
        for key in ("CPU", "CUDA", "CompositeExplicitAutograd")
    )


@cache
def does_no_work(operator):
    """Whether it only looks at memory in another way, or marks a profile."""
    in_place = torch.Tag.inplace_view in operator.tags and operator not in tables.MOVED
    return operator.is_view or in_place or operator.namespace == "profiler"


class Operators(TorchDispatchMode):
    """Sees every operator, those of backward passes too."""

    def __init__(self, device):
        super().__init__()
        self.device = device

    @classmethod
    def _should_skip_dynamo(cls):  # else torch._dynamo wraps every call
        return False

    @classmethod
    def ignore_compile_internals(cls):
        return True

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        with torch._C.DisableTorchFunction():
            if is_composite(operator):
                with self:
                    return operator.redispatch(ON_CPU, *args, **(kwargs or {}))
            if does_no_work(operator):
                return operator(*args, **(kwargs or {}))
            if any(map(_get_dispatch_mode, TRACING)):
                raise NotModelled("Tracing (make_fx, export, linearize) is not modelled.")
            try:
                return dispatch(self.device, operator, args, kwargs or {})
            except Exception as error:
                if is_refusal(error):
                    raise
                said = f"{type(error).__name__}: {error}"
                raise NotModelled(f"{name_of(operator)} is not modelled ({said}).") from error


def dispatch(device, operator, args, kwargs):
    tensors = tensors_in(args, kwargs)
    if not all(tensor.layout is torch.strided for tensor in tensors):
        return dispatch_sparse(device, operator, args, kwargs, tensors)
    placed = [(tensor, device.memory_kind(tensor)) for tensor in tensors]
    kinds = {kind for _, kind in placed}
    on_gpu = "cuda" in kinds
    kind = "cuda" if on_gpu else "cpu"
    crosses = operator is not aten.clone.default or device.asked.crossing
    if device.asked.want and takes_device(operator) and crosses:
        kind = device.asked.want
    backend = "CUDA" if on_gpu or kind == "cuda" else "CPU"
    if has_python_kernel(operator, backend):
        return call_python_kernel(device, operator, backend, args, kwargs)
    if not on_gpu and kind == "cpu" and "pinned" not in kinds:
        return run_on_cpu(operator, args, kwargs)
    if is_unfilled_factory(operator):
        return make_unfilled(device, operator, args, kwargs, kind)
    if not on_gpu and kind != "cuda":
        with device.lock:
            return device.execute(operator, args, kwargs, kind, HOST)
    if operator is aten.equal.default and device.in_range:
        return True
    if operator in tables.MOVED:
        return set_storage(device, operator, args, kwargs)
    if operator is aten._pack_padded_sequence.default:
        return pack_sequence(device, *args)
    operator, args = as_masked_fill(operator, args)
    with device.lock:
        return launch(device, operator, args, kwargs, placed, kind)


def run_on_cpu(operator, args, kwargs):
    """An operator of the CPU's own: its errors are the program's."""
    try:
        return operator(*args, **kwargs)
    except Exception as error:
        error.as_on_a_gpu = True
        raise


def dispatch_sparse(device, operator, args, kwargs, tensors):
    kinds = map(device.memory_kind, tensors)
    if device.asked.want == "cuda" or "cuda" in kinds:
        raise NotModelled(f"{name_of(operator)} of a sparse CUDA tensor is not modelled.")
    return run_on_cpu(operator, args, kwargs)


def set_storage(device, operator, args, kwargs):
    """A tensor's new storage or size: nothing happens if the size is the old one."""
    tensor, *size = args
    empty = operator in tables.SETS_STORAGE and not tensor.numel()
    if empty and size[0].data_ptr() in device.memory.blocks:  # torch.load and pickle do that
        return operator(*args, **kwargs)
    if operator is aten.resize_.default and list(tensor.shape) == list(size[0]):
        return tensor
    raise NotModelled(f"{name_of(operator)} on a CUDA tensor is not modelled.")


def pack_sequence(device, padded, lengths, batch_first=False):
    """The rows of each step, one step after the other. How many a step has lies on the CPU."""
    if device.memory_kind(lengths) == "cuda":
        dtype = errors.SCALARS.get(lengths.dtype, lengths.dtype)
        raise torch_error(errors.LENGTHS.format(lengths.dim(), dtype))
    given = torch.empty(padded.shape), lengths, batch_first  # without values
    sizes = run_on_cpu(aten._pack_padded_sequence.default, given, {})[1]
    steps = padded.transpose(0, 1) if batch_first else padded
    rows = [step[:size] for step, size in zip(steps, sizes.tolist(), strict=False)]
    return dispatch(device, aten.cat.default, (rows,), {}), sizes


def launch(device, operator, args, kwargs, placed, kind):
    """Launch an operator of the GPU's, or record it."""
    check_known(device, operator, args, placed)
    blocking = host_waits(device, operator, args, kwargs, placed, kind)
    generator, kwargs = take_generator(device, operator, kwargs)
    if not device.capturing():
        device.launches["operators"] += 1
        result = device.execute(operator, args, kwargs, kind, device.stream, generator)
        if blocking:
            device.order.wait(HOST, dict(device.order.clocks[device.stream]))
        return result
    if device.capture.lost:
        if errors.PER_CAPTURE and device.capture.lost == "freed":
            raise torch_error(errors.INVALIDATED)
        device.refuse(901)
    outputs = record(device, operator, args, kwargs, kind, generator)
    if blocking:
        device.refuse(900)
    return outputs


def check_known(device, operator, args, placed):
    """Refuse by name what a GPU does in a way that is not known."""
    name = name_of(operator).removeprefix("aten::").partition(".")[0]
    if torch.are_deterministic_algorithms_enabled() and name in tables.NOT_DETERMINISTIC:
        raise NotModelled(f"{name} with deterministic algorithms alone is not modelled.")
    from_cpu = any(here == "cpu" for _, here in placed)
    if name in tables.NUMBER_FROM_CPU and from_cpu and device.capturing():
        raise NotModelled(f"{name} with a tensor on the CPU in a capture is not modelled.")
    check_kernel(f"{name} {args[4]}" if name.startswith("scatter_reduce") else name, placed)
    fractions = (one.is_floating_point() or one.is_complex() for one, _ in placed)
    if name in tables.FLOATS_ALONE and not all(fractions):
        raise NotModelled(f"{name} of whole numbers is not modelled: a GPU refuses it.")
    if name in tables.WRONG_IF_COMPLEX and placed[0][0].is_complex():
        raise NotModelled(f"{name} of complex numbers is not modelled.")
    if device.capturing() and name in tables.UNKNOWN_IN_CAPTURES:
        raise NotModelled(f"{name} in a capture is not modelled: its libraries may wait or copy.")


def check_kernel(name, placed):
    """Refuse types, and shapes of eight bits, that CUDA has no kernel for and the CPU has."""
    types, kernel = tables.NO_KERNELS.get(name, ((), None))
    dtype = placed[0][0].dtype if placed else None
    if dtype in types and kernel and dtype in errors.SCALARS:
        words = kernel.format(errors.SCALARS[dtype])
        kind = NotImplementedError if "not implemented" in words else RuntimeError
        raise torch_error(words, kind)
    if dtype in types:
        raise NotModelled(f"{name} of {dtype} is not modelled: CUDA has no kernel for it.")
    if name in tables.EIGHT_BITS:
        first, second = (one for one, _ in placed[:2])
        sizes = *first.shape[1:], *second.shape
        odd = any(size % tables.EIGHT_BITS[name] for size in sizes)
        if odd or (name == "_int_mm" and first.shape[0] < 17):
            shapes = f"{tuple(first.shape)} and {tuple(second.shape)}"
            raise NotModelled(f"{name} of {shapes} is not modelled: CUDA refuses it.")


def make_unfilled(device, operator, args, kwargs, kind):
    """A tensor in memory as it is: no launch makes it."""
    with device.lock:
        made = allocate_results(device, operator, args, kwargs, kind)
        if device.capturing():
            device.capture.note_maker(device.node(operator, args, kwargs, made))
        return made


def allocate_results(device, operator, args, kwargs, kind):
    """Results in memory as it is."""
    allocate = partial(device.allocate, kind=kind)
    return allocate_uncomputed(operator, args, kwargs, allocate)


def record(device, operator, args, kwargs, kind, draws):
    outputs = None
    if operator._schema.returns:
        outputs = allocate_results(device, operator, args, kwargs, kind)
    device.capture.add(device.node(operator, args, kwargs, outputs, draws))
    return outputs


def host_waits(device, operator, args, kwargs, placed, kind):
    """Whether the host waits for this operator; raises what a capture refuses."""
    kinds = {here for _, here in placed}
    check_places(operator, args, kwargs, placed, kinds)
    if operator in tables.READS_A_COPY and tables.READS_A_COPY[operator](device, args, kwargs):
        if device.capturing():
            raise torch_error(errors.PAGEABLE)
        return True
    if reads_values(device, operator, args, kwargs):
        if device.capture:
            device.refuse(900)
        return True
    ordinary = [tensor for tensor, here in placed if here == "cpu"]
    copies = operator in tables.COPIES and (operator is aten.copy_.default or kinds != {kind})
    if not copies and "cuda" not in kinds:
        return False  # only shapes are taken from the others
    if not copies:
        ordinary = [tensor for tensor in ordinary if tensor.dim()]
    if ordinary and not copies and operator not in tables.INDEXING:
        raise torch_error(mismatch_text(operator, args, kwargs, placed))
    to = placed[0][1] if operator is aten.copy_.default else kind
    pageable = copies and (
        kind == "cpu" or ("pinned" in kinds | {kind} and needs_staging(operator, args, kwargs, to))
    )
    if ordinary or pageable:
        if device.capturing():
            raise torch_error(errors.PAGEABLE)
        return True
    return copies and len(kinds | {kind}) > 1 and not is_async(device, operator, args, kwargs)


def check_places(operator, args, kwargs, placed, kinds):
    """Refuse tensors of two places where torch asks before the host waits."""
    if operator in tables.ON_ONE_DEVICE and len(kinds) > 1:
        raise torch_error(mismatch_text(operator, args, kwargs, placed))
    if operator in tables.INDEXING and kinds - {"cpu"} and placed[0][1] == "cpu":
        raise torch_error(errors.CPU_INDEXED)


def needs_staging(operator, args, kwargs, kind):
    """Whether torch copies from or to pinned memory by way of CPU memory that is not pinned.

    A copy that does not wait converts types on the GPU.
    """
    if operator is not aten.copy_.default:
        return kind == "cuda" and not is_dense(args[0])
    target, source = args[:2]
    non_blocking = args[2] if len(args) > 2 else kwargs.get("non_blocking")
    same_type = target.dtype is source.dtype or non_blocking
    same = same_type and target.shape == source.shape
    if same and target.stride() == source.stride() and is_dense(source):
        return False
    return not (same and source.is_contiguous()) if kind == "cuda" else not target.is_contiguous()


def is_dense(tensor):
    return aten.is_non_overlapping_and_dense.default(tensor)


def mismatch_text(operator, args, kwargs, placed):
    """Operators that check each argument name the first that differs; TensorIterator does not."""
    if operator.namespace != "aten" or operator._schema.name not in tables.CHECKS_ARGUMENTS:
        return errors.TWO_DEVICES
    kinds = {id(tensor): "cpu" if here == "cpu" else "cuda:0" for tensor, here in placed}
    first = None
    for number, argument in enumerate(operator._schema.arguments):
        given = args[number] if number < len(args) else kwargs.get(argument.name)
        for tensor in tensors_in(given):
            here = kinds[id(tensor)]
            first = first or here
            if here != first:
                called = "index" if argument.name == "indices" else argument.name  # as index_select
                return errors.DIFFERENT_ARGUMENT.format(called, here, first)
    return errors.TWO_DEVICES


def is_async(device, operator, args, kwargs):
    """Whether a copy lets the host go on."""
    if device.asked.non_blocking or kwargs.get("non_blocking"):
        return True
    return operator is aten.copy_.default and any(args[2:])


def reads_values(device, operator, args, kwargs):
    """Whether the host must know values before it can go on."""
    if operator in tables.INDEXING:
        masks = torch.bool, torch.uint8
        return any(index is not None and index.dtype in masks for index in args[1])
    if operator is aten.repeat_interleave.Tensor:
        return kwargs.get("output_size") is None
    waits = tables.WAITING.get(operator)
    return shaped_by_values(operator) or bool(waits and waits(device, args, kwargs))


@cache
def shaped_by_values(operator):
    return not SHAPED.isdisjoint(operator.tags)


def as_masked_fill(operator, args):
    """x[mask] = number is ``masked_fill_`` on a GPU."""
    if operator is not aten.index_put_.default or len(args[1]) > 1 or any(args[3:]):
        return operator, args
    (mask,) = args[1]
    value = args[2]
    if mask.dtype is not torch.bool or value.dim() > 0:
        return operator, args
    return aten.masked_fill_.Tensor, (args[0], mask, value)


def take_generator(device, operator, kwargs):
    """The generator that an operator draws from, as a node holds it, and the arguments
    without it.
    """
    if torch.Tag.nondeterministic_seeded not in operator.tags:
        return None, kwargs
    # Python's, which operators do not get
    given = device.asked.generator if kwargs.get("generator") else None
    generator = given or torch.cuda.default_generators[0]
    if generator.device.type != "cuda":
        raise torch_error("Expected a 'cuda' device type for generator but found 'cpu'")
    without = {"generator": None} if "generator" in kwargs else {}
    return generator.next_draw(), kwargs | without
