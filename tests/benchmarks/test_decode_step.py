"""The page on the decode step."""

import pandas as pd
import pytest

pytest.importorskip("triton")
from benchmarks import decode_step


@pytest.mark.parametrize(("data_sheet", "shares"), [(None, "50.0%"), (5.0, "50.0% | 40.0%")])
def test_the_page_has_a_share_of_each_limit(data_sheet, shares):
    row = {"q1": 990.0, "median": 1000.0, "q3": 1020.0, "error": 0.0375, "kernels": 98.0}
    found = pd.DataFrame([row], ["one split"])
    page = decode_step.report(found, 2 * 10**9, read_bandwidth=4.0, data_sheet=data_sheet)
    assert f"| one split | 1000.00 [990.00, 1020.00] | {shares} | 98 | 0.0375 |" in page
    assert ("--data-sheet 5`" in page) == (data_sheet is not None)
    assert f"- **one split**: {decode_step.IDEAS['one split'].reason}" in page
