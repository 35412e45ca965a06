"""What the rules of a capture are for, on the stand-in; those of other threads need a GPU."""

from benchmarks.capture_rules import collection, every_nth_step, outcome
from cpu_graph import cpu_graphs


def ends(rule, kept):
    with cpu_graphs():
        return outcome(rule, kept)


def test_only_with_a_graph_for_each_branch_are_all_losses_equal():
    assert ends(every_nth_step, kept=True) == "12 of 12 losses equal"
    count, _, rest = ends(every_nth_step, kept=False).partition(" ")
    assert 0 < int(count) < 12 and rest == "of 12 losses equal"


def test_only_with_the_rule_does_a_collection_spare_the_capture():
    assert ends(collection, kept=True) == "replays [2.0, 2.0, 2.0, 2.0]"
    assert ends(collection, kept=False).startswith("raises info.status")
