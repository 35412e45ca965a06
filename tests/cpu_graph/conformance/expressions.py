"""Expressions whose replay gives what eager gives:
conjugates, views in place, products, indices.
"""

import torch
from torch.nn import functional as F

from tests.cpu_graph.conformance.sameness import same

same(
    a_conjugate_times=lambda i: i.z.conj() * 2,
    a_conjugate_matmul=lambda i: i.z.conj() @ i.w,
    a_conjugate_adjoint=lambda i: i.z.mH @ i.z,
    a_conjugate_clone=lambda i: i.z.conj().clone(),
    a_conjugate_imag=lambda i: i.z.conj().imag * 1,
    a_conjugate_physical=lambda i: torch.conj_physical(i.z),
    a_conjugate_vdot=lambda i: torch.vdot(i.w, i.w),
    a_conjugate_cat=lambda i: torch.cat([i.z.conj(), i.z]),
    a_conjugate_where=lambda i: torch.where(i.m, i.z.conj(), i.z),
    a_conjugate_copied=lambda i: torch.empty_like(i.z).copy_(i.z.conj()),
    a_conjugate_filled=lambda i: torch.zeros_like(i.z).conj().copy_(i.z) * 1,
    a_conjugate_in_place=lambda i: i.z.clone().conj().mul_(2j) * 1,
    a_conjugate_neg_add=lambda i: i.z.clone().conj().imag.add_(1) * 2,
    a_conjugate_addmm=lambda i: torch.addmm(i.w, i.z.conj(), i.z.conj()[:3].T @ i.z[:3, :3]),
    a_conjugate_view_as_real=lambda i: torch.view_as_real(i.z.conj().resolve_conj()) * 1,
    a_conjugate_irfft=lambda i: torch.fft.irfft(i.z),
    a_conjugate_hfft2=lambda i: torch.fft.hfft2(i.z),
    a_conjugate_index=lambda i: i.z.conj()[i.n],
)
same(
    a_view_in_place_squeeze_=lambda i: i.x[:1].clone().squeeze_() * 2,
    a_view_in_place_squeeze_dim_=lambda i: i.x[:1].clone().squeeze_(0) * 2,
    a_view_in_place_unsqueeze_=lambda i: i.x.clone().unsqueeze_(1) * 2,
    a_view_in_place_t_=lambda i: i.x.clone().t_() * 2,
    a_view_in_place_transpose_=lambda i: i.t.clone().transpose_(0, 2) * 2,
    a_view_in_place_swapaxes_=lambda i: i.t.clone().swapaxes_(0, 1) + 1,
    a_view_in_place_swapdims_=lambda i: i.t.clone().swapdims_(1, 2) + 1,
    a_view_in_place_as_strided_=lambda i: i.x.clone().as_strided_((3, 2), (1, 3)) * 2,
    a_product_written=lambda i: i.x.clone().t_().mul_(2).t_(),
    a_view_in_place_detach_=lambda i: i.x.clone().detach_() * 2,
    a_product_vector_matrix=lambda i: i.v @ i.y,
    a_product_linear_of_a_vector_bias=lambda i: F.linear(i.v, i.x, i.u),
    a_product_batch_vector=lambda i: i.t @ i.u,
    a_product_matrix_batch=lambda i: i.s @ i.t,
    a_product_tensordot=lambda i: torch.tensordot(i.t, i.x, dims=([1], [1])),
    a_product_einsum_batch=lambda i: torch.einsum("bij,jk->bik", i.t, i.x),
    a_product_multi_dot=lambda i: torch.linalg.multi_dot([i.x, i.s, i.y]),
    a_product_addmv=lambda i: torch.addmv(i.u, i.x, i.v),
    a_product_squeeze_list=lambda i: i.x[None, :1].squeeze((0, 1)) * 2,
)
same(
    an_operator_histc_bounds=lambda i: torch.histc(i.x, 4, 0, 2),
    an_operator_repeat_interleave_int=lambda i: torch.repeat_interleave(i.x, 2),
    an_operator_isclose=lambda i: torch.isclose(i.x, i.x),
    an_operator_median_dim=lambda i: i.x.median(0)[0],
    an_operator_mode=lambda i: i.b.mode(0)[0],
    an_operator_kthvalue=lambda i: i.x.kthvalue(2, 0)[0],
    an_operator_sort=lambda i: i.x.sort(0)[0],
    an_operator_searchsorted=lambda i: torch.searchsorted(i.signal.sort()[0], i.x),
    an_operator_index_copy=lambda i: i.x.index_copy(0, torch.arange(4, device="cuda"), i.x * 2),
    an_operator_scatter_reduce=lambda i: i.x.scatter_reduce(0, i.b % 4, i.x, "sum"),
    an_operator_take=lambda i: i.x.take(i.n),
    an_operator_get_indices=lambda i: i.x[i.n, i.n],
    an_operator_put_accumulate=lambda i: torch.zeros_like(i.x).index_put_(
        (i.n,), i.x, accumulate=True
    ),
    an_operator_clamp_tensor=lambda i: i.x.clamp(max=i.u[0]),
    an_operator_iterated=lambda i: [row * 2 for row in i.x],
)
same(
    a_function_silu=lambda i: F.silu(i.x),
    a_function_var=lambda i: i.x.var(0),
    a_function_std_mean=lambda i: torch.std_mean(i.x, 0),
    a_function_pad_reflect=lambda i: F.pad(i.image, (1, 1, 1, 1), "reflect"),
    a_function_bilinear_up=lambda i: F.interpolate(i.image, scale_factor=2, mode="bilinear"),
    a_function_fold=lambda i: F.fold(F.unfold(i.image, 2, stride=2), (8, 8), 2, stride=2),
    a_function_grid_sample=lambda i: F.grid_sample(
        i.image, torch.zeros(2, 4, 4, 2, device="cuda"), align_corners=False
    ),
    a_function_affine_grid=lambda i: F.affine_grid(
        torch.ones(2, 2, 3, device="cuda"), (2, 3, 8, 8), align_corners=False
    ),
    a_function_max_pool_indices=lambda i: F.max_pool2d(i.image, 2, return_indices=True),
    a_function_adaptive=lambda i: F.adaptive_avg_pool2d(i.image, 1),
    a_function_conv_transposed=lambda i: F.conv_transpose2d(
        i.image, torch.ones(3, 2, 3, 3, device="cuda")
    ),
    a_function_cross_entropy=lambda i: F.cross_entropy(i.x, i.n),
    a_function_triplet=lambda i: F.triplet_margin_loss(i.x, i.x * 2, i.x * 3),
    a_function_group_norm=lambda i: F.group_norm(i.image, 3),
    a_function_instance_norm=lambda i: F.instance_norm(i.image),
    a_function_embedding_padding=lambda i: F.embedding(i.n, i.x, padding_idx=0),
    a_function_local_response=lambda i: F.local_response_norm(i.image, 2),
    a_function_integers=lambda i: i.b // 2,
    a_function_foreach=lambda i: torch._foreach_add([i.x, i.s], 1),
    a_function_split=lambda i: [t * 1 for t in i.x.split(3)],
    a_function_meshgrid=lambda i: torch.meshgrid(i.v, i.u, indexing="ij")[0] * 1,
    a_function_channels_last=lambda i: i.image.contiguous(memory_format=torch.channels_last) * 2,
    a_function_double=lambda i: i.x.double() @ i.y.double(),
    a_function_bfloat=lambda i: i.x.bfloat16() @ i.y.bfloat16(),
    a_function_uint8=lambda i: i.b.to(torch.uint8) + 1,
    a_function_any_all=lambda i: (i.m.any(), i.m.all()),
    a_function_nan_to_num=lambda i: (i.x / 0).nan_to_num(1, 2, 3),
    a_function_type_as=lambda i: i.b.type_as(i.x) * 2,
    a_function_masked_softmax=lambda i: i.x.masked_fill(i.m, -1e9).softmax(-1),
    a_function_frexp=lambda i: torch.frexp(i.x),
)
