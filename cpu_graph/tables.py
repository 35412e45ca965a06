"""What a GPU does with single operators, where neither the schema nor the CPU's operator tells it.

Sources: PyTorch's CUDA kernels (aten/src/ATen/native/cuda, 2.11 to 2.15) and what an H200 did in
tests/cpu_graph (the operator sweep and the conformance programs).
"""

import torch

from cpu_graph.errors import SCALARS, SINCE_2_15

aten = torch.ops.aten

INDEXING = {  # take indices that lie on the CPU, or masks, which have to be counted
    aten.index.Tensor,
    aten.index_put_.default,
    aten.index_put.default,
    aten._index_put_impl_.default,
}
COPIES = {aten.copy_.default, aten._to_copy.default, aten.clone.default}
MOVED = {*(getattr(aten.set_, name) for name in aten.set_.overloads()), aten.resize_.default}
SETS_STORAGE = {aten.set_.source_Storage, aten.set_.source_Storage_storage_offset}


ATTENTION = {aten._scaled_dot_product_flash_attention_for_cpu.default}


def gpu_strides_of(operator, result):
    """The strides of a result on a GPU: attention in full precision keeps the heads of a position
    side by side.
    """
    if operator not in ATTENTION or result.dim() != 4 or result.dtype is not torch.float32:
        return result.stride()
    _, heads, length, size = result.shape
    return heads * length * size, size, heads * size, 1


def always(device, args, kwargs):
    return True


def without_bounds(device, args, kwargs):
    """histc looks for the smallest and the largest value itself if both bounds are equal."""
    low = args[2] if len(args) > 2 else kwargs.get("min", 0)
    high = args[3] if len(args) > 3 else kwargs.get("max", 0)
    return low == high


def value_on_gpu(device, args, kwargs):
    """The value to fill with, the last argument, is read if it is a CUDA tensor."""
    return device.memory_kind([*args, *kwargs.values()][-1]) == "cuda"


def many_test_elements(device, args, kwargs):
    """isin sorts where there are many elements to look for, and asks how many differ."""
    elements, tested = args[:2]
    return tested.numel() >= int(10 * elements.numel() ** 0.145)


def reads_group_ends(device, args, kwargs):
    """Only in bfloat16 does the kernel of grouped_mm read on the GPU where each group ends."""
    offs = args[2] if len(args) > 2 else kwargs.get("offs")
    return offs is not None and args[0].dtype is not torch.bfloat16


def whole_zero_points(device, args, kwargs):
    """fake_quantize_per_channel_affine checks zero points that are whole numbers on the CPU."""
    return not args[2].is_floating_point()


def quantizes_per_row(device, args, kwargs):
    """The observer of rows then quantizes with whole zero points."""
    return bool(args[11] if len(args) > 11 else kwargs.get("per_row_fake_quant"))


WAITING = {  # operator -> whether the host waits for values inside of it
    aten._linalg_check_errors.default: always,
    aten._fake_quantize_learnable_per_channel_affine.default: always,
    aten._fake_quantize_learnable_per_tensor_affine.default: always,
    aten._fused_moving_avg_obs_fq_helper.default: quantizes_per_row,
    aten.fake_quantize_per_channel_affine_cachemask.default: whole_zero_points,
    aten.histc.default: without_bounds,
    aten.isin.Tensor_Tensor: many_test_elements,
    aten.masked_fill.Tensor: value_on_gpu,
    aten.masked_fill_.Tensor: value_on_gpu,
    aten.index_fill.int_Tensor: value_on_gpu,
    aten.index_fill_.int_Tensor: value_on_gpu,
}
if not SINCE_2_15:  # it checked that no deviation is negative
    for name in ("Tensor_Tensor", "float_Tensor", "Tensor_Tensor_out", "float_Tensor_out"):
        WAITING[getattr(aten.normal, name)] = always
READS_A_COPY = {  # the same, by a copy to ordinary memory, which a capture refuses in other words
    aten.bincount.default: always,
    aten._grouped_mm.default: reads_group_ends,
}
if not SINCE_2_15:
    READS_A_COPY[aten.histc.default] = WAITING.pop(aten.histc.default)
UNKNOWN_IN_CAPTURES = {  # they call libraries that may wait or copy; not compared with a GPU
    "embedding_renorm_",
    "_linalg_eigh",
    "_linalg_svd",
    "cholesky_inverse",
    "linalg_lu",
    "linalg_pinv",
    "linalg_lu_solve",
    "linalg_qr",
    "linalg_eig",
    "_linalg_eigvals",
    "linalg_lstsq",
    "geqrf",
    "linalg_householder_product",
    "ormqr",
    "lu_unpack",
    "linalg_ldl_factor_ex",
    "linalg_ldl_solve",
    "linalg_matrix_exp",
    "_ctc_loss",
    "choose_qparams_optimized",
    "quantize_per_channel",
    "quantize_per_tensor",
    "quantize_per_tensor_dynamic",
    "segment_reduce",
    "_nested_tensor_from_mask",
}
WHOLE = *SCALARS, torch.uint16, torch.uint32, torch.uint64
REDUCTIONS = "prod", "amin", "amax"
SMALL_FLOATS = torch.float16, torch.bfloat16


def no_integer_kernel(kernel):
    """Whole numbers are refused, in the words of a kernel of PyTorch's."""
    return WHOLE, f"\"{kernel}\" not implemented for '{{}}'"


# operator -> the types of its first tensor that the CPU has a kernel for and CUDA none, and what
# PyTorch says of them if that is known; from torch's test database (op.dtypes - op.dtypesIfCUDA)
NO_KERNELS = dict.fromkeys(("mm", "addmm", "_addmm_activation"), no_integer_kernel("addmm_cuda"))
NO_KERNELS |= dict.fromkeys(("bmm", "baddbmm", "addbmm"), no_integer_kernel("baddbmm_cuda"))
NO_KERNELS |= dict.fromkeys(("mv", "addmv"), no_integer_kernel("addmv_impl_cuda"))
NO_KERNELS |= dict.fromkeys(("dot", "vdot"), no_integer_kernel("dot"))
NO_KERNELS |= {
    "avg_pool2d": no_integer_kernel("avg_pool2d_out_cuda_frame"),
    "max_pool2d_with_indices": no_integer_kernel("max_pool2d_with_indices_out_cuda_frame"),
    "convolution": (WHOLE, "getCudnnDataTypeFromScalarType() not supported for {}"),
    "avg_pool3d": (WHOLE, None),
    "max_pool3d_with_indices": (WHOLE, None),
    "_trilinear": (WHOLE, None),
    "native_dropout_backward": (WHOLE, None),
    "upsample_bilinear2d": (WHOLE, None),
    "upsample_bicubic2d": (WHOLE, None),
    "_upsample_bilinear2d_aa": (WHOLE, None),
    "_upsample_bicubic2d_aa": (WHOLE, None),
    "igamma": (SMALL_FLOATS, None),
    "igammac": (SMALL_FLOATS, None),
    "histc": (SMALL_FLOATS, None),
    "linalg_vector_norm": ((torch.complex32,), None),
}
NO_KERNELS |= dict.fromkeys(
    (f"scatter_reduce{ending} {reduce}" for ending in ("", "_") for reduce in REDUCTIONS),
    ((torch.bool,), None),
)
NO_KERNELS |= dict.fromkeys(
    (
        "histogram",
        "_histogramdd_bin_edges",
        "_histogramdd_from_bin_cts",
        "_histogramdd_from_bin_tensors",
    ),
    ((*SMALL_FLOATS, torch.float32, torch.float64, *WHOLE), None),
)
NO_KERNELS |= dict.fromkeys(
    ("_scaled_mm", "_scaled_mm_v2"), ((torch.float8_e4m3fnuz, torch.float8_e5m2fnuz), None)
)
EIGHT_BITS = {"_scaled_mm": 16, "_int_mm": 8}  # what all sizes but the rows must be multiples of
ON_ONE_DEVICE = {aten.equal.default}  # checked before the host waits
LIKE_EAGER = {"convolution", "_convolution"}  # their shape function asks which device it is for
WRONG_IF_COMPLEX = {"linalg_matrix_sqrth", "linalg_polar"}  # torch's, below any dispatch mode
FLOATS_ALONE = {"std", "std_mean", "var", "var_mean"}  # which refuse whole numbers
# a CPU tensor of no dimension is copied, or is a number: not compared with a GPU
NUMBER_FROM_CPU = {"clamp", "clamp_", "clamp_max", "clamp_min", "where"}
CHECKS_ARGUMENTS = {  # the device of each argument, one by one, before their kernel
    "aten::addmm",
    "aten::bmm",
    "aten::cat",
    "aten::dot",
    "aten::embedding",
    "aten::equal",
    "aten::gather",
    "aten::index_select",
    "aten::mm",
    "aten::mv",
    "aten::native_batch_norm",
    "aten::native_layer_norm",
    "aten::nll_loss_forward",
    "aten::scatter",
    "aten::stack",
    "aten::take",
}
NOT_DETERMINISTIC = {  # torch.use_deterministic_algorithms refuses some uses of them on a GPU
    "put_",
    "scatter_reduce_",
    "scatter_reduce",
    "histc",
    "bincount",
    "kthvalue",
    "median",
    "cumsum",
    "cumsum_",
    "_adaptive_avg_pool2d_backward",
    "adaptive_max_pool2d_backward",
    "adaptive_max_pool3d_backward",
    "avg_pool3d_backward",
    "max_pool3d_with_indices_backward",
    "max_unpool2d",
    "fractional_max_pool2d_backward",
    "reflection_pad1d_backward",
    "reflection_pad2d_backward",
    "reflection_pad3d_backward",
    "replication_pad1d_backward",
    "replication_pad2d_backward",
    "replication_pad3d_backward",
    "upsample_linear1d_backward",
    "upsample_bilinear2d_backward",
    "upsample_bicubic2d_backward",
    "upsample_trilinear3d_backward",
    "grid_sampler_2d_backward",
    "grid_sampler_3d_backward",
    "nll_loss2d_forward",
    "_ctc_loss_backward",
    "_embedding_bag_dense_backward",
}
