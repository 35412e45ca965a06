"""A linear layer with several LoRA adapters, of which each row of a batch uses its own.

    index = torch.zeros(rows, dtype=torch.long, device="cuda")  # the adapter of each row
    layer = MultiLoRALinear(layer, n_adapters=8, rank=16, index=index)

The adapters are stacked in two tensors, and index is a tensor on the GPU. So one graph serves all
adapters: a replay reads the new values of all three. Servers do the same with fused kernels:
https://arxiv.org/abs/2310.18547
"""

import torch
from torch import Tensor, nn


class MultiLoRALinear(nn.Module):
    """base(x) + x @ A.mT @ B.mT, with A and B of each row's own adapter."""

    def __init__(self, base: nn.Linear, n_adapters: int, rank: int, index: Tensor | int) -> None:
        super().__init__()
        self.base = base
        self.index = index  # (B,), or a number: then every row uses that adapter
        factory_kwargs = {"device": base.weight.device, "dtype": base.weight.dtype}
        A = torch.randn(n_adapters, rank, base.in_features, **factory_kwargs) / 16
        B = torch.randn(n_adapters, base.out_features, rank, **factory_kwargs) / 16
        self.register_buffer("A", A)
        self.register_buffer("B", B)

    def forward(self, x: Tensor) -> Tensor:
        """x (B, T, in_features) to (B, T, out_features)."""
        A, B = self.A[self.index], self.B[self.index]  # (B, rank, in), (B, out, rank)
        return self.base(x) + x @ A.mT @ B.mT
