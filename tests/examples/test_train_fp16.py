"""The float16 training to copy: a graph trains as eager, and what its numbered lines are for."""

import pytest

from cpu_graph import cpu_graphs
from tests.support.scripts import names_of, numbered_lines, outcome_of_change

CHANGES = {  # a line, what takes its place, and what happens
    1: ("self.copy_stream.wait_event(self.has_been_read)", "pass", "silent"),
    2: ("torch.cuda.current_stream().wait_stream(self.copy_stream)", "pass", "silent"),
    3: (', capture_error_mode="thread_local"', "", "same"),  # see lesson 04
    8: ("gc.disable()", "pass", "same"),  # see lesson 04
    4: ("return self.loss.clone()", "return self.loss", "silent"),
    5: ('lr = torch.tensor(1e-3, device="cuda")', "lr = 1e-3", "silent"),
    6: ("capturable=True,", "", "raises"),
    7: ("fused=True,", "", "raises"),
}


SMALLER = (  # the stand-in has no other threads
    ("WORKERS = 2", "WORKERS = 0"),
    ("ROWS, WIDTH = 4_000, 512", "ROWS, WIDTH = 256, 16"),
)


def losses_of(*changes, graphed=True):
    """The losses of the script, and the number of replays."""
    with cpu_graphs() as device:
        losses = names_of("train_fp16", *SMALLER, *changes)["train"](graphed)
        return losses, device.launches["graphs"]


@pytest.fixture(scope="module")
def eager_losses():
    losses, replays = losses_of(graphed=False)
    assert replays == 0 and len(set(losses)) == 8
    return losses


def test_the_graph_trains_as_eager(eager_losses):
    losses, replays = losses_of()
    assert losses == eager_losses
    assert replays == len(losses) - 3, "all steps but the warm-up"


@pytest.mark.parametrize("number", CHANGES)
def test_without_a_line_it_ends_otherwise(number, eager_losses):
    *line, expected = CHANGES[number]
    assert outcome_of_change(lambda: losses_of(line)[0], eager_losses) == expected


def test_every_numbered_line_is_left_out_once():
    assert set(numbered_lines("train_fp16")) == {str(number) for number in CHANGES}


def test_it_runs_by_itself(capsys):
    with cpu_graphs():
        names_of("train_fp16", *SMALLER, name="__main__")
    assert capsys.readouterr().out.endswith("8 of 8 losses are equal to the eager ones\n")
