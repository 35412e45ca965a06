"""The step can be captured and its graph trains as eager does, unless a repair is left out."""

import linecache

import pytest
import torch

from capturable import preflight
from cpu_graph import cpu_graphs
from examples import check_step
from tests.support import scripts

NAME = "changed_step.py"
OUTER = ("optimizer.zero_grad()", "nonlocal temperature; optimizer.zero_grad()")
IN_PLACE = "temperature.mul_(0.9).clamp_(min=1.0)"
LEFT_OUT = {  # changes -> preflight's rules, and what becomes of the graph
    "1": ([(", capturable=True", "")], {"optimizer"}, "refused"),
    "2, 4": (
        [
            ("torch.tensor(2.0, device=device)", "2.0"),
            (IN_PLACE, "temperature = max(1.0, 0.9 * temperature)"),
            OUTER,
        ],
        {"CPU work", "frozen number"},
        "silent",
    ),
    "3": (
        [("torch.where(loss > 2, loss / 2, loss)", "loss / 2 if loss > 2 else loss")],
        {"sync", "path"},
        "refused",
    ),
    "4": (
        [(IN_PLACE, "temperature = (0.9 * temperature).clamp(min=1.0)"), OUTER],
        {"moved tensor"},
        "silent",
    ),
    "5": ([("loss.detach()", "loss.item()")], {"sync", "output"}, "refused"),
}


def changed(changes=()):
    """The example's functions, with changes to its source."""
    source = scripts.changed_source("check_step", *changes)
    linecache.cache[NAME] = (len(source), None, source.splitlines(keepends=True), NAME)
    namespace = {"__name__": "changed"}
    exec(compile(source, NAME, "exec"), namespace)
    return namespace


def rules_broken(functions):
    step, batch, other_batch = functions["make_step"]()
    return {finding.rule for finding in preflight(step, *batch, other_inputs=other_batch)}


def test_every_loss_is_that_of_eager(capsys):
    with cpu_graphs():
        check_step.main()
    assert capsys.readouterr().out == "10 of 10 losses are equal\n"
    assert rules_broken(changed()) == set()


@pytest.mark.parametrize("number", LEFT_OUT)
def test_what_becomes_of_it_without_a_numbered_line(number):
    changes, rules, outcome = LEFT_OUT[number]
    functions = changed(changes)
    assert rules_broken(functions) == rules
    with cpu_graphs():
        step, batch, other_batch = functions["make_step"]()
        batches = [batch, other_batch] * 3
        if outcome == "refused":
            with pytest.raises(RuntimeError):
                functions["train_graph"](step, batches)
        else:
            eager = [step(*batch) for batch in batches]
            graph = functions["train_graph"](functions["make_step"]()[0], batches)
            assert not torch.equal(torch.stack(graph), torch.stack(eager))
