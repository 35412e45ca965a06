"""The float16 training to copy: a graph trains as eager."""

from cpu_graph import cpu_graphs
from tests.support.scripts import names_of

SMALLER = (  # the stand-in has no other threads
    ("WORKERS = 2", "WORKERS = 0"),
    ("ROWS, WIDTH = 4_000, 512", "ROWS, WIDTH = 256, 16"),
)


def losses_of(graphed):
    """The losses of the script, and the number of replays."""
    with cpu_graphs() as device:
        losses = names_of("train_fp16", *SMALLER)["train"](graphed)
        return losses, device.launches["graphs"]


def test_the_graph_trains_as_eager():
    eager_losses, eager_replays = losses_of(graphed=False)
    assert eager_replays == 0 and len(set(eager_losses)) == 8
    losses, replays = losses_of(graphed=True)
    assert losses == eager_losses
    assert replays == len(losses) - 3, "all steps but the warm-up"


def test_it_runs_by_itself(capsys):
    with cpu_graphs():
        names_of("train_fp16", *SMALLER, name="__main__")
    assert capsys.readouterr().out.endswith("8 of 8 losses are equal to the eager ones\n")
