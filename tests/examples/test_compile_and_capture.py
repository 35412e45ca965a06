"""A training with compiled kernels in a graph, on the stand-in, which only models compiling."""

import pytest

from cpu_graph import cpu_graphs
from exercises.answers.wrong import Wrong
from exercises.scenarios.let_torch_compile_capture import compiling
from tests.support.scripts import names_of


def printed(capsys, *change):
    """What the script prints with one of its lines changed."""
    with cpu_graphs(), compiling() as notes:
        names_of("compile_and_capture", *change)["main"]()
    assert notes.captured == 1
    return capsys.readouterr().out


def test_it_trains_as_the_eager_model(capsys):
    assert "as the eager training: True" in printed(capsys)


@pytest.mark.parametrize(
    ("line", "instead", "refused"),
    [
        (
            "torch.compile(build_model())",
            'torch.compile(build_model(), mode="reduce-overhead")',
            "graphs of its own",
        ),
        ("WARMUP = 3", "WARMUP = 0", "the first call, which compiles"),
    ],
)
def test_the_capture_refuses(capsys, line, instead, refused):
    with pytest.raises(Wrong, match=refused):
        printed(capsys, (line, instead))


@pytest.mark.parametrize(
    ("line", "instead"),
    [
        ("static_inputs.copy_(inputs)", "pass"),
        ("static_targets.copy_(targets)", "pass"),
        ("static_loss.clone()", "static_loss"),
    ],
)
def test_it_silently_trains_or_logs_something_else(capsys, line, instead):
    assert "as the eager training: False" in printed(capsys, (line, instead))
