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
    a_conjugate_imag=lambda i: i.z.conj().imag * 1,
    a_conjugate_physical=lambda i: torch.conj_physical(i.z),
    a_conjugate_copied=lambda i: torch.empty_like(i.z).copy_(i.z.conj()),
    a_conjugate_in_place=lambda i: i.z.clone().conj().mul_(2j) * 1,
    a_conjugate_addmm=lambda i: torch.addmm(i.w, i.z.conj(), i.z.conj()[:3].T @ i.z[:3, :3]),
    a_conjugate_view_as_real=lambda i: torch.view_as_real(i.z.conj().resolve_conj()) * 1,
    a_conjugate_irfft=lambda i: torch.fft.irfft(i.z),
)
same(
    a_view_in_place_squeeze_=lambda i: i.x[:1].clone().squeeze_() * 2,
    a_view_in_place_unsqueeze_=lambda i: i.x.clone().unsqueeze_(1) * 2,
    a_view_in_place_t_=lambda i: i.x.clone().t_() * 2,
    a_view_in_place_as_strided_=lambda i: i.x.clone().as_strided_((3, 2), (1, 3)) * 2,
    a_product_written=lambda i: i.x.clone().t_().mul_(2).t_(),
    a_view_in_place_detach_=lambda i: i.x.clone().detach_() * 2,
    a_product_vector_matrix=lambda i: i.v @ i.y,
    a_product_linear_of_a_vector_bias=lambda i: F.linear(i.v, i.x, i.u),
    a_product_einsum_batch=lambda i: torch.einsum("bij,jk->bik", i.t, i.x),
    a_product_addmv=lambda i: torch.addmv(i.u, i.x, i.v),
)
same(
    an_operator_histc_bounds=lambda i: torch.histc(i.x, 4, 0, 2),
    an_operator_repeat_interleave_int=lambda i: torch.repeat_interleave(i.x, 2),
    an_operator_searchsorted=lambda i: torch.searchsorted(i.signal.sort()[0], i.x),
    an_operator_scatter_reduce=lambda i: i.x.scatter_reduce(0, i.b % 4, i.x, "sum"),
    an_operator_get_indices=lambda i: i.x[i.n, i.n],
    an_operator_put_accumulate=lambda i: torch.zeros_like(i.x).index_put_(
        (i.n,), i.x, accumulate=True
    ),
    an_operator_iterated=lambda i: [row * 2 for row in i.x],
)
same(
    a_function_max_pool_indices=lambda i: F.max_pool2d(i.image, 2, return_indices=True),
    a_function_cross_entropy=lambda i: F.cross_entropy(i.x, i.n),
    a_function_embedding_padding=lambda i: F.embedding(i.n, i.x, padding_idx=0),
    a_function_foreach=lambda i: torch._foreach_add([i.x, i.s], 1),
    a_function_split=lambda i: [t * 1 for t in i.x.split(3)],
    a_function_channels_last=lambda i: i.image.contiguous(memory_format=torch.channels_last) * 2,
)
