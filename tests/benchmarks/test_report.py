"""The tables of pages of results."""

import pandas as pd

from benchmarks.report import table


def test_a_table_is_markdown():
    frame = pd.DataFrame(
        {"us": ["5 [4, 6]", "1"], "kernels": [38.0, 3.25]}, index=["eager", "graph"]
    )
    assert table(frame).splitlines() == [
        "| variant | us | kernels |",
        "| --- | --- | --- |",
        "| eager | 5 [4, 6] | 38 |",
        "| graph | 1 | 3.25 |",
    ]
