"""What the rules of a capture are for, on the stand-in, which has no second thread."""

import pytest

from benchmarks.capture_rules import RULES, collection, outcome, pinning_thread, waiting_thread
from cpu_graph import cpu_graphs

ON_A_GPU = {pinning_thread, waiting_thread}


def ends(rule, kept):
    with cpu_graphs():
        return outcome(rule, kept)


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule not in {*ON_A_GPU, collection}])
def test_only_with_the_rule_are_all_losses_equal(rule):
    assert ends(rule, kept=True) == "12 of 12 losses equal"
    count, _, rest = ends(rule, kept=False).partition(" ")
    assert 0 < int(count) < 12 and rest == "of 12 losses equal"


def test_only_with_the_rule_does_a_collection_spare_the_capture():
    assert ends(collection, kept=True) == "replays [2.0, 2.0, 2.0, 2.0]"
    assert ends(collection, kept=False).startswith("raises info.status")
