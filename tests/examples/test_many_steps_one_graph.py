"""Ten steps in one graph train as eager steps do."""

from tests.support.scripts import printed_by


def test_it_trains_as_eager_does():
    assert "equal to eager: True" in printed_by("many_steps_one_graph")
