"""Ten steps in one graph train as eager steps do, unless one leaves out a numbered line."""

import pytest

from cpu_graph import cpu_graphs
from examples import many_steps_one_graph

SOURCE = many_steps_one_graph.__spec__.loader.get_source(many_steps_one_graph.__name__)
LEFT_OUT = {
    "3. the warm-up stays": ("weight.copy_(before)", "pass"),
    "4. no copy": ("inputs.copy_(new_inputs)", "pass"),
    "5. no clone": ("return static_losses.clone()", "return static_losses"),
}


def said(source, capsys):
    namespace = {"__name__": "changed"}
    with cpu_graphs():
        exec(source, namespace)
        namespace["main"]()
    return capsys.readouterr().out


def test_it_trains_as_eager_does(capsys):
    assert "equal to eager: True" in said(SOURCE, capsys)


@pytest.mark.parametrize("name", LEFT_OUT)
def test_without_a_numbered_line_it_silently_trains_something_else(name, capsys):
    line, change = LEFT_OUT[name]
    assert SOURCE.count(line) == 1
    assert "equal to eager: False" in said(SOURCE.replace(line, change), capsys)
