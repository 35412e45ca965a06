"""Expressions whose replay gives what eager gives: conjugates, views in place."""

import torch

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
)
