"""A replay draws what eager would draw next; a capture draws nothing."""

import torch
from torch.utils.checkpoint import checkpoint

from tests.cpu_graph.conformance.common import SINCE_2_13, SINCE_2_15, captured, ones
from tests.cpu_graph.conformance.outcomes import program, programs


def draw():
    return torch.rand(8, device="cuda")


@program(True)
def a_capture_draws_nothing():
    state = torch.cuda.get_rng_state()
    captured(draw)
    return torch.equal(state, torch.cuda.get_rng_state())


@program(True)
def replays_draw_what_eager_would():
    replay = captured(draw)
    torch.cuda.manual_seed(1)
    replayed = [replay().clone() for _ in range(3)]
    torch.cuda.manual_seed(1)
    return all(torch.equal(one, draw()) for one in replayed)


@program(True)
def eager_goes_on_where_a_replay_ended():
    replay = captured(draw)
    torch.cuda.manual_seed(1)
    mixed = [replay().clone(), draw(), replay().clone(), draw()]
    torch.cuda.manual_seed(1)
    return all(torch.equal(one, draw()) for one in mixed)


@program([True, False])
def dropout_differs_and_can_be_seeded():
    x = ones(256)
    replay = captured(lambda: torch.nn.functional.dropout(x))
    torch.cuda.manual_seed(1)
    first = replay().clone()
    second = replay().clone()
    torch.cuda.manual_seed(1)
    return [torch.equal(first, replay()), torch.equal(first, second)]


@program(1, shows="A dropout that is frozen")
def a_state_set_back_in_the_capture():
    def there_and_back():
        state = torch.cuda.get_rng_state()
        number = draw()
        torch.cuda.set_rng_state(state)
        return number

    replay = captured(there_and_back)
    return len({replay().sum().item() for _ in range(5)})


@program(
    [
        "RuntimeError: CUDAGeneratorImpl::set_current_seed can be called during stream capture "
        "only if new seed"
    ]
)
def a_seed_set_in_a_capture():
    def seed_and_draw():
        torch.cuda.manual_seed(torch.cuda.initial_seed() + 1)
        return draw()

    captured(seed_and_draw)


@program(False)
def the_same_seed_in_a_capture_is_ignored():
    def both():
        first = draw()
        torch.cuda.manual_seed(torch.cuda.initial_seed())
        return first, draw()

    return torch.equal(*captured(both)())


@program(True)
def an_announced_generator_draws_as_eager():
    own, graph = torch.Generator("cuda").manual_seed(1), torch.cuda.CUDAGraph()
    graph.register_generator_state(own)

    def mine():
        return torch.rand(4, device="cuda", generator=own)

    replay = captured(mine, graph)
    replayed = [replay().clone() for _ in range(3)]
    own.manual_seed(1)
    return all(torch.equal(one, mine()) for one in replayed)


UNANNOUNCED = (
    "RNG op during graph capture but generator is not registered"
    if SINCE_2_13
    else "Attempt to increase offset for a CUDA generator not in capture mode."
)


@program(8 if SINCE_2_15 else [f"RuntimeError: {UNANNOUNCED}"])  # 2.15 registers it at its draw
def a_generator_that_nobody_announced():
    own = torch.Generator("cuda").manual_seed(1)
    return captured(lambda: torch.rand(8, device="cuda", generator=own))().numel()


@program(
    8
    if SINCE_2_13
    else ["RuntimeError: Offset increment outside graph capture encountered unexpectedly."]
)
def random_numbers_after_a_failure():
    """Refused before torch 2.13."""
    x, stream = ones(4), torch.cuda.current_stream()
    try:
        captured(lambda: x.mean().item())
    except RuntimeError:
        torch.cuda.set_stream(stream)
    return draw().numel()


def masks_of_a_checkpoint(preserve):
    """Whether a checkpointed dropout in a graph meets its own mask again in the backward pass."""
    x = ones(256).requires_grad_()

    def step():
        output = checkpoint(
            torch.nn.functional.dropout, x, use_reentrant=False, preserve_rng_state=preserve
        )
        return output.detach(), torch.autograd.grad(output.sum(), x)[0]

    output, gradient = captured(step)()
    return torch.equal(output, gradient)


programs(
    a_checkpoint_that_keeps_the_random_state=(True, lambda: masks_of_a_checkpoint(preserve=True)),
    a_checkpoint_that_does_not=(False, lambda: masks_of_a_checkpoint(preserve=False)),
)
