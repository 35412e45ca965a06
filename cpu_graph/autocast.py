"""Autocast as on a GPU: its lists of operators and types are not the CPU's.

torch knows both lists. In a block of autocast the CPU's kernels for AutocastCPU are replaced, for
all operators in either list, by what a GPU does with them (aten/src/ATen/autocast_mode.h).
"""

import warnings
from contextlib import contextmanager
from functools import cache

import torch
from torch._C import DispatchKey, DispatchKeySet, _dispatch_has_kernel_for_dispatch_key

from cpu_graph.errors import NotModelled, torch_error
from cpu_graph.trees import mapped, tensors_in

LOWER = """
conv1d conv1d.padding conv2d conv2d.padding conv3d conv3d.padding conv_tbc conv_transpose1d
conv_transpose2d.input conv_transpose3d.input convolution _convolution _convolution.deprecated prelu
addmm addmv addr matmul einsum mm mv linalg_vecdot linear addbmm baddbmm bmm chain_matmul
linalg_multi_dot lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell scaled_dot_product_attention
"""
FLOAT32 = """
acos asin cosh erfinv exp expm1 log log10 log2 log1p reciprocal rsqrt sinh tan pow.Tensor_Scalar
pow.Tensor_Tensor pow.Scalar softplus layer_norm native_layer_norm group_norm rms_norm frobenius_norm.dim
nuclear_norm nuclear_norm.dim cosine_similarity poisson_nll_loss cosine_embedding_loss nll_loss
nll_loss2d hinge_embedding_loss kl_div l1_loss smooth_l1_loss huber_loss mse_loss
margin_ranking_loss multilabel_margin_loss soft_margin_loss triplet_margin_loss multi_margin_loss
binary_cross_entropy_with_logits dist pdist cdist renorm logsumexp upsample_nearest1d
upsample_nearest1d.vec _upsample_nearest_exact1d _upsample_nearest_exact1d.vec upsample_nearest2d
upsample_nearest2d.vec _upsample_nearest_exact2d _upsample_nearest_exact2d.vec upsample_nearest3d
upsample_nearest3d.vec _upsample_nearest_exact3d _upsample_nearest_exact3d.vec upsample_linear1d
upsample_linear1d.vec upsample_bilinear2d upsample_bilinear2d.vec _upsample_bilinear2d_aa
_upsample_bilinear2d_aa.vec upsample_trilinear3d upsample_trilinear3d.vec upsample_bicubic2d
upsample_bicubic2d.vec _upsample_bicubic2d_aa _upsample_bicubic2d_aa.vec
"""
FLOAT32_AS_DTYPE = """
prod prod.dim_int softmax.int log_softmax.int cumprod cumsum linalg_vector_norm linalg_matrix_norm
linalg_matrix_norm.str_ord sum sum.dim_IntList
"""
FLOAT32_APPENDED = {  # operator -> its overload with a type
    "norm.Scalar": "norm.ScalarOpt_dtype",
    "norm.ScalarOpt_dim": "norm.ScalarOpt_dim_dtype",
}
WIDEST = """
addcdiv addcmul atan2 bilinear cross dot vdot grid_sampler index_put tensordot scatter_add
"""
BANNED = (
    "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast.\n"
    "Use torch.nn.functional.binary_cross_entropy_with_logits, or disable autocast for it."
)
REDUCED = torch.float16, torch.bfloat16
FLOATS = *REDUCED, torch.float32  # float64 is left alone


@cache
def operators_with_kernel(key):
    """torch's operators that have a kernel for a key of autocast."""
    names = [name for name in torch._C._dispatch_get_all_op_names() if name.startswith("aten::")]
    known = [name for name in names if _dispatch_has_kernel_for_dispatch_key(name, key)]
    return {name.removeprefix("aten::") for name in known}


@contextmanager
def gpu_autocast(device):
    """Let autocast on the CPU cast as on a GPU what lies in the stand-in's memory."""
    on_gpu, on_cpu = operators_with_kernel("AutocastCUDA"), operators_with_kernel("AutocastCPU")
    library = torch.library.Library("aten", "IMPL")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it overrides kernels of torch's own
        for name in sorted(on_gpu | on_cpu):
            policy = policies.get(name, unknown) if name in on_gpu else unchanged
            if policy is cast_to_lower and name in on_cpu:
                continue  # the CPU's kernel does the same, and keeps weights that it has cast
            kernel = autocast_kernel(name, policy, device)
            library.impl(name, kernel, "AutocastCPU", allow_override=True)
    try:
        yield
    finally:
        library._destroy()


def autocast_kernel(name, policy, device):
    packet, _, overload = name.partition(".")
    operator = getattr(getattr(torch.ops.aten, packet), overload or "default")

    made_of_others = policy is unchanged and operator._can_decompose()

    def cast(*args, **kwargs):
        if made_of_others:  # which a GPU's autocast casts
            return operator.decompose(*args, **kwargs)
        with torch._C._ExcludeDispatchKeyGuard(DispatchKeySet(DispatchKey.AutocastCPU)):
            if all(device.memory_kind(tensor) != "cuda" for tensor in tensors_in(args, kwargs)):
                return operator(*args, **kwargs)
            return policy(operator, args, kwargs)

    return cast


def cast_tensors(types, dtype, tree):
    """The same arguments, with tensors of some types as another type."""
    return mapped(lambda tensor: tensor.to(dtype) if tensor.dtype in types else tensor, tree)


def cast_to_lower(operator, args, kwargs):
    args, kwargs = cast_tensors(FLOATS, torch.get_autocast_dtype("cpu"), (args, kwargs))
    return operator(*args, **kwargs)


def cast_to_float32(operator, args, kwargs):
    args, kwargs = cast_tensors(REDUCED, torch.float32, (args, kwargs))
    return operator(*args, **kwargs)


def set_float32(operator, args, kwargs):
    given = any(isinstance(arg, torch.dtype) for arg in [*args, kwargs.get("dtype")])
    if args[0].dtype in REDUCED and not given:
        kwargs = kwargs | {"dtype": torch.float32}
    return operator(*args, **kwargs)


def append_float32(operator, args, kwargs):
    if args[0].dtype not in REDUCED:
        return operator(*args, **kwargs)
    packet, _, overload = FLOAT32_APPENDED[operator.name().removeprefix("aten::")].partition(".")
    operator = getattr(getattr(torch.ops.aten, packet), overload)
    # what the overload with a type has no default for
    given = {"p": 2, "dim": [], "keepdim": False}
    names = [argument.name for argument in operator._schema.arguments]
    kwargs = given | dict(zip(names, args, strict=False)) | kwargs | {"dtype": torch.float32}
    return operator(**{name: kwargs[name] for name in names})


def cast_to_widest(operator, args, kwargs):
    types = {tensor.dtype for tensor in tensors_in(args, kwargs)} & set(FLOATS)
    dtype = torch.float32 if torch.float32 in types else torch.get_autocast_dtype("cpu")
    args, kwargs = cast_tensors(FLOATS, dtype, (args, kwargs))
    return operator(*args, **kwargs)


def unchanged(operator, args, kwargs):
    return operator(*args, **kwargs)


def banned(operator, args, kwargs):
    raise torch_error(BANNED)


def unknown(operator, args, kwargs):
    raise NotModelled(f"{operator.name()} under autocast is not modelled.")


policies = dict.fromkeys(LOWER.split(), cast_to_lower)
policies |= dict.fromkeys(FLOAT32.split(), cast_to_float32)
policies |= dict.fromkeys(FLOAT32_AS_DTYPE.split(), set_float32)
policies |= dict.fromkeys(FLOAT32_APPENDED, append_float32)
policies |= dict.fromkeys(WIDEST.split(), cast_to_widest)
policies["binary_cross_entropy"] = banned
