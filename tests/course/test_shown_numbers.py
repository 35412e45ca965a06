"""How lessons show numbers."""

import matplotlib.pyplot as plt
import pandas as pd
import pytest

from course.display import describe_charts, five_digits, round_numbers


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (345183.7, "345184"),
        (8.288460406902232e-08, "8.2885e-08"),
        (-776957268393677.5, "-7.7696e+14"),
        (float("inf"), "inf"),
    ],
)
def test_five_digits(value, text):
    assert five_digits(value) == text


def test_values_and_tables_show_five_digits_and_keep_theirs(shell):
    with pd.option_context("display.float_format", None):
        round_numbers(shell)
        values = {"a": [1 / 3, 2.0, float("nan")], "b": 19.969843000000022}
        shown = shell.display_formatter.format(values)[0]
        assert shown["text/plain"] == "{'a': [0.33333, 2.0, nan], 'b': 19.97}"
        table = pd.DataFrame({"us": [1543.21987, 347.0]})
        html = shell.display_formatter.format(table)[0]["text/html"]
        assert "<td>1543.2</td>" in html and "<td>347</td>" in html and table.us[0] == 1543.21987


def test_a_chart_has_its_titles_as_text(shell):
    describe_charts(shell)
    figure, axes = plt.subplots()
    figure.suptitle("A step takes\n<360 µs>.")
    axes.set_title("of an H200")
    data, _ = shell.display_formatter.format(figure)
    image = '<img class="chart" alt="A step takes &lt;360 µs&gt;. of an H200" src="data:image/png'
    assert data["text/html"].startswith(image)
    figure.suptitle("")
    axes.set_title("")
    assert 'alt="Chart without a title"' in shell.display_formatter.format(figure)[0]["text/html"]
    plt.close(figure)
