"""Fake quantization: which of its operators read a value on the CPU."""

import torch

from tests.cpu_graph.conformance.common import READ, captured, ones, zeros
from tests.cpu_graph.conformance.outcomes import programs


def rows(zero, quantize=torch.fake_quantize_per_channel_affine, **options):
    """Quantize the rows of a matrix, eagerly and in a graph: whether both agree."""
    x, scale = torch.rand(4, 8, device="cuda"), ones(4) * 0.1

    def step():
        return quantize(x, scale, zero, 0, -128, 127, **options)

    eager = step()
    return torch.equal(captured(step)(), eager)


def tensor(quantize):
    """The same with one scale for all."""
    x = torch.rand(4, 8, device="cuda")
    scale, zero = ones(1) * 0.1, zeros(1)
    eager = quantize(x, scale, zero)
    return torch.equal(captured(lambda: quantize(x, scale, zero))(), eager)


def observed(per_row):
    """A moving average of the range, and quantization by it."""
    x, on = torch.rand(4, 8, device="cuda"), torch.ones(1, dtype=torch.int64, device="cuda")
    low, high = zeros(4), zeros(4)
    scale = ones(4)
    zero = torch.zeros(4, dtype=torch.int32, device="cuda")

    def step():
        return torch.fused_moving_avg_obs_fake_quant(
            x, on, on, low, high, scale, zero, 0.01, -128, 127, 0, per_row, False
        )

    step()
    return captured(step)().shape == x.shape


programs(
    zero_points_that_are_whole_are_checked=(
        READ,
        lambda: rows(torch.zeros(4, dtype=torch.int32, device="cuda")),
    ),
    zero_points_that_are_fractions_are_not=(True, lambda: rows(zeros(4))),
    learnable_scales_of_rows_are_checked=(
        READ,
        lambda: rows(zeros(4), torch._fake_quantize_learnable_per_channel_affine),
    ),
    a_learnable_scale_is_read=(
        READ,
        lambda: tensor(
            lambda *given: torch._fake_quantize_learnable_per_tensor_affine(*given, -128, 127)
        ),
    ),
    one_scale_in_a_tensor_is_not_read=(
        True,
        lambda: tensor(
            lambda x, scale, zero: torch.fake_quantize_per_tensor_affine(
                x, scale, zero.int(), -128, 127
            )
        ),
    ),
    an_observer_of_rows_is_read=(READ, lambda: observed(True)),
)
