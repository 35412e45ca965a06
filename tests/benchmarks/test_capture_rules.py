"""What the rules of a capture are for, on the stand-in, which has no second thread."""

import ast

import pytest

from benchmarks.capture_rules import RULES, collection, outcome, pinning_thread, waiting_thread
from course.paths import ROOT
from cpu_graph import cpu_graphs

ON_A_GPU = {pinning_thread, waiting_thread}
SCRIPTS = sorted((ROOT / "examples").glob("*.py"))
COPY = {
    "augment_in_graph",
    "check_step",
    "many_steps_one_graph",
    "share_a_pool",
    "train_fp16",
}


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


def functions(path):
    """The functions named capturing of a file, without comments."""
    tree = ast.parse(path.read_text())
    return [
        ast.unparse(node)
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and node.name == "capturing"
    ]


def test_scripts_to_copy_open_their_captures_in_one_way():
    (pattern,) = functions(ROOT / "examples" / "train_fp16.py")
    found = {path.stem: functions(path) for path in SCRIPTS}
    assert {name for name, copies in found.items() if copies} >= COPY
    assert all(copy == pattern for copies in found.values() for copy in copies)
    for name in COPY:
        source = (ROOT / "examples" / f"{name}.py").read_text()
        assert source.count("torch.cuda.graph(") == 1, f"{name} captures outside of capturing"
