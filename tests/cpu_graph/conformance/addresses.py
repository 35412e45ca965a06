"""A graph knows addresses, not names."""

import torch

from tests.cpu_graph.conformance.common import captured, layer, ones, zeros
from tests.cpu_graph.conformance.outcomes import program


@program([2, 6], shows="A new tensor under the old name")
def a_name_bound_anew_has_no_effect():
    static = ones(4)
    replay, old = captured(lambda: static * 2), static
    static = ones(4) * 3
    stale = replay()[0].item()
    old.copy_(static)
    return [stale, replay()[0].item()]


def after_another_tensor(keep):
    inputs = [ones(2**20)]
    replay = captured(lambda: inputs[0] * 2)
    if not keep:
        inputs.clear()
    intruder = torch.full((2**20,), 7.0, device="cuda")
    return replay()[0].item() + 0 * intruder[0].item()


@program(14, shows="An input that was freed")
def a_freed_input_is_the_next_tensor():
    return after_another_tensor(keep=False)


@program(2)
def a_kept_input_is_its_own():
    return after_another_tensor(keep=True)


@program([3, 3, 3], shows="A result that is overwritten")
def a_kept_result_is_overwritten():
    counter = zeros(())
    replay = captured(lambda: counter.add_(1) * 1)
    kept = [replay() for _ in range(3)]
    return [result.item() for result in kept]


def three_doublings(write):
    state = {"h": ones(1)}
    first = state["h"]  # kept, or its memory would be free
    replay = captured(lambda: write(state))
    for _ in range(3):
        result = replay()
    return result.item() + 0 * first.numel()


@program(2, shows="A state that is not written back")
def a_state_in_python_is_not_written_back():
    return three_doublings(lambda state: state.update(h=state["h"] * 2) or state["h"])


@program(8)
def a_state_in_place_is_written_back():
    return three_doublings(lambda state: state["h"].mul_(2))


def after_loading(**options):
    net, doubled = layer(), {"weight": ones(4, 4) * 2}
    old = net.weight
    replay = captured(lambda: net(ones(1, 4))[0, 0])
    net.load_state_dict(doubled, **options)
    return replay().item() + 0 * old.numel()


@program(4, shows="A weight that was replaced")
def an_assigned_weight_has_no_effect():
    return after_loading(assign=True)


@program(8)
def a_weight_loaded_in_place_has_effect():
    return after_loading()


@program([5])
def an_intermediate_is_computed_again():
    static, between = ones(1), []

    def step():
        between.append(static + 1)
        return between[0] * 1

    replay = captured(step)
    replay()
    between[0].fill_(100)
    static.fill_(4)
    return replay()


@program(True)
def what_is_freed_in_a_capture_is_used_again_in_it():
    x = ones(2**20)
    addresses = []

    def step():
        for _ in range(2):
            addresses.append((x * 2).data_ptr())

    captured(step)
    return addresses[0] == addresses[1]
