"""What a refused operation says, in the words of CUDA and PyTorch, and what is not modelled."""

from collections.abc import Callable
from typing import NoReturn

import torch

VERSION = tuple(map(int, torch.__version__.split(".")[:2]))
PER_CAPTURE = VERSION >= (2, 13)  # random states are, since then
SINCE_2_15 = VERSION >= (2, 15)

CUDA = {
    1: ("cudaErrorInvalidValue", "invalid argument"),
    101: ("cudaErrorInvalidDevice", "invalid device ordinal"),
    401: ("cudaErrorIllegalState", "the operation cannot be performed in the present state"),
    700: ("cudaErrorIllegalAddress", "an illegal memory access was encountered"),
    710: ("cudaErrorAssert", "device-side assert triggered"),
    900: ("cudaErrorStreamCaptureUnsupported", "operation not permitted when stream is capturing"),
    901: (
        "cudaErrorStreamCaptureInvalidated",
        "operation failed due to a previous error during capture",
    ),
    904: ("cudaErrorStreamCaptureUnjoined", "capturing stream has unjoined work"),
    905: (
        "cudaErrorStreamCaptureIsolation",
        "dependency created on uncaptured work in another stream",
    ),
    906: (
        "cudaErrorStreamCaptureImplicit",
        "operation would make the legacy stream depend on a capturing blocking stream",
    ),
    907: (
        "cudaErrorCapturedEvent",
        "operation not permitted on an event last recorded in a capturing stream",
    ),
}
PAGEABLE = (
    "Cannot copy between CPU and CUDA tensors during CUDA graph capture unless the CPU tensor is "
    "pinned. Please use tensor.pin_memory() or allocate the tensor with pin_memory=True."
)
TWO_DEVICES = (
    "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!"
)
DIFFERENT_ARGUMENT = (
    "Expected all tensors to be on the same device, but got {} is on {}, "
    "different from other tensors on {}"
)
SCALARS = {  # what ATen calls types of whole numbers
    torch.bool: "Bool",
    torch.uint8: "Byte",
    torch.int8: "Char",
    torch.int16: "Short",
    torch.int32: "Int",
    torch.int64: "Long",
}
ONE_DEVICE = "The stand-in is one device."
DEVICE_INDEX = "Device index value {} is out of index range [0, 1)"
CPU_INDEXED = "indices should be either on cpu or on the same device as the indexed tensor (cpu)"
WRONG_PLACE = (
    "Function {}Backward returned an invalid gradient at index {} - expected device {} but got {}"
)
GRADIENT_PLACE = (
    "attempting to assign a gradient with device type '{}' to a tensor with device type '{}'. "
    "Please ensure that the gradient and the tensor are on the same device"
)
NO_KERNEL = "Could not run '{}' with arguments from the 'CUDA' backend."
NO_PINNING = "Only dense CPU tensors can be pinned"
LENGTHS = "'lengths' argument should be a 1D CPU int64 tensor, but got {}D cuda:0 {} tensor"
NUMPY = (
    "can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() to copy the tensor to "
    "host memory first."
)
SEED = (
    "CUDAGeneratorImpl::set_current_seed can be called during stream capture only if new seed is "
    "the same as the original seed."
)
UNREGISTERED = "Attempt to increase offset for a CUDA generator not in capture mode."
if PER_CAPTURE:
    UNREGISTERED = (
        "RNG op during graph capture but generator is not registered with the capturing graph. "
        "Call graph.register_generator_state() before capture_begin()."
    )
NEW_GENERATOR = (
    "Cannot construct a new CUDAGeneratorImpl during CUDA graph capture. If you need this call to "
    "be captured, please file an issue. "
    "Current cudaStreamCaptureStatus: cudaStreamCaptureStatusActive"
)
STALE_STREAM = (  # instead of 906 since 2.13
    "During CUDA graph capture, autograd node 'torch::autograd::AccumulateGrad' has a stale "
    "reference to the default stream (stream 0) from warmup. This will invalidate the capture "
    "because cudaStreamWaitEvent on the default stream pulls a "
    "non-capturing stream into the graph."
)
INVALIDATED = (  # the allocator's words since 2.13, where before the kernel's launch said 901
    "info.status != cudaStreamCaptureStatusInvalidated INTERNAL ASSERT FAILED at "
    f'"/__w/pytorch/pytorch/c10/cuda/CUDACachingAllocator.cpp":{2362 if SINCE_2_15 else 2213}, '
    "please report a bug to PyTorch. Invalid stream capture status"
)
RNN_BACKWARD = "cudnn RNN backward can only be called in training mode"
IN_BODY = "RNG within data-dependent conditional nodes is not supported yet."
OUTSIDE = "Offset increment outside graph capture encountered unexpectedly."
LATE = "Cannot register the state during capturing stage."
NO_GRAPH = "Called CUDAGraph::replay without a preceding successful capture."
OWNS_GRAPH = (
    "This CUDAGraph instance already owns a captured graph. To capture a "
    "new graph, create a new instance."
)
NOT_KEPT = "You cannot access the raw cudaGraph_t instance unless CUDAGraph was initialized with keep_graph=true"
REPLAY_INSIDE = (
    "Cannot prepare for replay during capturing stage. during CUDA graph capture. If you need this call to be "
    "captured, please file an issue. Current cudaStreamCaptureStatus: cudaStreamCaptureStatusActive"
)
DEFAULT_STREAM = (
    "CUDA graphs must be captured on a non-default stream. (However, after capture, it's ok to replay them on the "
    "default stream.)"
)
EMPTY = "The CUDA Graph is empty. This usually means that the graph was attempted to be captured on wrong device or stream."


NO_POOL = "Called CUDAGraph::pool() without a preceding successful capture."
NO_POOLS = "Called CUDAGraph::pools() without a preceding successful capture."
OTHER_STREAM = "Capture must end on the same stream it began on."
NO_TUPLE = (
    "capture_begin(): incompatible function arguments. The following argument types are supported:"
)
NOT_BEGUN = "capture_end() called before capture_begin()."
NOT_ENDED = "capture_end() must have been called before calling instantiate"
NOT_THE_USERS = "instantiate() is intended to be called by the user only when keep_graph=true"
NO_CAPTURE = (
    "get_currently_capturing_graph() can be used only between capture_begin() and capture_end(). Did you use a "
    "stream without making it depend upon the original stream used for capture?"
)
ERROR_MODES = "global", "thread_local", "relaxed"
UNKNOWN_MODE = "Unknown capture error mode. Expected `global`, `thread_local`, or `relaxed`, got "
if SINCE_2_15:
    NO_CAPTURE = "The current stream is not currently capturing."
    NOT_KEPT = (
        "No cudaGraph_t is available: either capture_end() has not been called, or the underlying cudaGraph_t was "
        "destroyed (keep_graph=false, and capture has been finalized)."
    )


class NotModelled(NotImplementedError):
    """The stand-in does not know what a GPU would do here."""


class MissingAttribute(NotModelled, AttributeError):
    """An attribute that the stand-in does not have, so that hasattr and getattr work."""


def torch_error(text: str, kind: type[Exception] = RuntimeError) -> Exception:
    """An error that torch raises on a GPU; errors without this mark are the stand-in's own
    failures.
    """
    error = kind(text)
    error.as_on_a_gpu = True  # type: ignore[attr-defined]
    return error


def attr_error(name: str, real: type, called: str) -> AttributeError:
    """The error for a name that an object lacks: torch's own if this torch has no such name."""
    if torch.version.cuda and not hasattr(real, name):  # other builds have dummies
        error = f"'{called}' object has no attribute '{name}'"
        return torch_error(error, AttributeError)  # type: ignore[return-value]
    return MissingAttribute(f"{called}.{name} is not modelled.")


def not_modelled_stub(what: str) -> Callable[..., NoReturn]:
    """A function that is there and refuses each call by this name."""

    def refuse(*_: object, **__: object) -> NoReturn:
        raise NotModelled(f"{what} is not modelled.")

    return refuse


def pickle_error(thing: object) -> Exception:
    """What Python says of a copy or a pickle of an object that C++ made."""
    return torch_error(f"cannot pickle '{type(thing).__name__}' object", TypeError)


NO_GPU_HAS = 2**40  # bytes


def out_of_memory(size: int) -> Exception:
    """The error for more bytes than there are; the stand-in does not know how many a GPU has."""
    if size < NO_GPU_HAS:
        return NotModelled(f"A tensor of {size} bytes: how much memory there is, is not modelled.")
    words = f"CUDA out of memory. Tried to allocate {size / 2**30:.2f} GiB."
    return torch_error(words, torch.OutOfMemoryError)


def is_refusal(error: Exception) -> bool:
    return isinstance(error, NotModelled) or getattr(error, "as_on_a_gpu", False)


def cuda_error(number: int, why: str = "") -> torch.AcceleratorError:
    """The error that torch raises for a CUDA error's number; why: one more line."""
    name, text = CUDA[number]
    where = "https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__TYPES.html"
    more = f"Search for `{name}' in {where} for more information."
    words = "\n".join(filter(None, [f"CUDA error: {text}", more, why]))
    return torch_error(words, torch.AcceleratorError)
