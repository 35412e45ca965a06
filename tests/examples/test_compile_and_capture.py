"""A training with compiled kernels in a graph, on the stand-in, which only models compiling."""

from cpu_graph import cpu_graphs
from exercises.scenarios.let_torch_compile_capture import compiling
from tests.support.scripts import names_of


def test_it_trains_as_the_eager_model(capsys):
    with cpu_graphs(), compiling() as notes:
        names_of("compile_and_capture")["main"]()
    assert notes.captured == 1
    assert "as the eager training: True" in capsys.readouterr().out
