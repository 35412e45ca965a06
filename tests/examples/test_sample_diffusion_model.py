"""A small diffusion model, trained and sampled as graphs on the stand-in."""

import pytest
import torch

from cpu_graph import cpu_graphs
from examples.sample_diffusion_model import NO_CLASS, DiT, Sampler, noise_levels
from tests.support.scripts import run_main

SMALL = ["--size", "8", "--train-steps", "5", "--batch-size", "3", "--steps", "6"]
NARROW = (
    ("n_layer: int = 4", "n_layer: int = 1"),
    ("n_embd: int = 256", "n_embd: int = 16"),
    ("init.zeros_", "init.ones_"),  # a model of so few steps should see its inputs, too
)


@pytest.fixture(autouse=True, scope="module")
def precision_stays():
    precision = torch.get_float32_matmul_precision()
    yield
    torch.set_float32_matmul_precision(precision)


def log_of(*flags):
    """The log of the script, the seconds apart, and how many graphs it launches."""
    log, replays = run_main("sample_diffusion_model", smaller=NARROW, arguments=[[*SMALL, *flags]])
    return [line for line in log.splitlines() if " in " not in line], replays


def test_the_graphs_give_the_same_as_eager():
    eager_log, eager_replays = log_of("--eager")
    assert eager_replays == 0 and len(eager_log) == 1 + 3
    log, replays = log_of()
    assert log == eager_log
    assert replays == (5 - 3) + (6 + 6 + 3 - 3), "all steps but the warm-ups"


def small_sampler(batch_size):
    torch.manual_seed(0)
    model = DiT(8, n_layer=1, n_embd=16).cuda()
    for parameter in model.parameters():
        parameter.data.normal_(std=0.2)
    return Sampler(model, batch_size)


def test_a_seed_gives_its_picture_in_any_batch():
    with cpu_graphs():
        labels = torch.tensor([2, 1], device="cuda")
        both = small_sampler(2).sample(labels, [7, 8], 2.0, noise_levels(4))
        alone = small_sampler(1).sample(labels[1:], [8], 2.0, noise_levels(4))
        assert torch.allclose(both[1:], alone, atol=1e-5)


def test_guidance_of_one_is_the_model_alone():
    with cpu_graphs():
        sampler = small_sampler(1)
        labels = torch.tensor([2], device="cuda")
        pictures = sampler.sample(labels, [0], 1.0, noise_levels(1))
        noise = torch.empty(1, 1, 8, 8, device="cuda")
        noise[0].normal_(generator=torch.Generator("cuda").manual_seed(0))
        with torch.no_grad():
            velocity = sampler.model(noise, torch.ones((), device="cuda"), labels)
            other = sampler.model(noise, torch.ones((), device="cuda"), labels.fill_(NO_CLASS))
        assert torch.allclose(pictures, noise - velocity, atol=1e-5)
        assert not torch.allclose(velocity, other)
