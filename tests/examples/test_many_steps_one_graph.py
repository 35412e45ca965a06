"""Ten steps in one graph train as eager steps do, unless one leaves out a numbered line."""

import pytest

from tests.support.scripts import printed_by

LEFT_OUT = {
    "3. the warm-up stays": ("weight.copy_(before)", "pass"),
    "4. no copy": ("inputs.copy_(new_inputs)", "pass"),
    "5. no clone": ("return static_losses.clone()", "return static_losses"),
}


def test_it_trains_as_eager_does():
    assert "equal to eager: True" in printed_by("many_steps_one_graph")


@pytest.mark.parametrize("name", LEFT_OUT)
def test_without_a_numbered_line_it_silently_trains_something_else(name):
    assert "equal to eager: False" in printed_by("many_steps_one_graph", LEFT_OUT[name])
