import itertools

import matplotlib

matplotlib.use("agg")

import matplotlib.pyplot as plt
import pandas as pd
import pytest
from conftest import event, kernel, launch, step

from helpers.charts import cpu_gpu_chart, timeline
from helpers.trace import read_trace


@pytest.fixture(autouse=True)
def close_figures():
    yield
    plt.close("all")


@pytest.fixture
def rounds():
    rows = [
        (i, name, host + i, wall + i)
        for i in range(4)
        for name, host, wall in (("eager", 900, 1000), ("graph", 20, 300))
    ]
    return pd.DataFrame(rows, columns=["round", "variant", "host_us", "step_us"])


def test_the_bars_are_the_medians(rounds):
    axes = cpu_gpu_chart(rounds, {"eager": 290.0, "graph": 295.0})
    widths = {
        bars.get_label(): [bar.get_width() for bar in bars] for bars in axes.containers if hasattr(bars, "patches")
    }
    assert widths == {"host time": [901.5, 21.5], "GPU busy time": [290, 295], "step time": [1001.5, 301.5]}
    assert [label.get_text() for label in axes.get_yticklabels()] == ["eager", "graph"]
    assert "us" in axes.get_xlabel() and axes.get_title() == ""


def test_the_guess_lies_on_its_bar(rounds):
    axes = cpu_gpu_chart(rounds, guess=("graph", "step time", 500))
    (mark,) = [line for line in axes.lines if line.get_label() == "your guess"]
    bars = [bars for bars in axes.containers if hasattr(bars, "patches") and bars.get_label() == "step time"][0]
    assert mark.get_xdata()[0] == 500
    assert bars[1].get_y() < mark.get_ydata()[0] < bars[1].get_y() + bars[1].get_height()


def test_the_timeline_has_a_lane_per_stream_and_a_tie_per_activity(write_trace):
    path = write_trace(
        step(0, 0, 50),
        launch(5, 1),
        kernel(10, 5, 1),
        launch(8, 2),
        kernel(12, 9, 2, stream=20),
        step(1, 50, 50),
        launch(60, 3),
        kernel(65, 5, 3),
    )
    axes = timeline(read_trace(path))
    assert [label.get_text() for label in axes.get_yticklabels()] == [
        "host ranges",
        "launches",
        "GPU stream 7",
        "GPU stream 20",
    ]
    ties = axes.collections[-1].get_segments()
    assert [(tie[0][0], tie[1][0]) for tie in ties] == [(5, 10), (8, 12)]


def test_two_timelines_share_an_axis(write_trace):
    longer = timeline(read_trace(write_trace(step(0, 0, 500), launch(5, 1), kernel(10, 5, 1)))).get_xlim()
    shorter = read_trace(write_trace(step(0, 0, 50), launch(5, 1), kernel(10, 5, 1)))
    assert timeline(shorter).get_xlim() < longer == timeline(shorter, end=longer[1]).get_xlim()


def test_names_of_narrow_ranges_do_not_overlap(write_trace):
    ranges = [event("user_annotation", f"## a_rather_long_name_{i} ##", i * 5, 4) for i in range(3)]
    path = write_trace(step(0, 0, 1000), *ranges, launch(5, 1), kernel(900, 99, 1))
    axes = timeline(read_trace(path))
    axes.figure.canvas.draw()
    boxes = [text.get_window_extent() for text in axes.texts]
    assert len(boxes) == 3
    assert not any(a.overlaps(b) for a, b in itertools.combinations(boxes, 2))


def test_a_missing_step_is_named(write_trace):
    trace = read_trace(write_trace(step(0, 0, 50), launch(5, 1), kernel(10, 5, 1)))
    with pytest.raises(IndexError, match="steps 0 to 0, not 3"):
        timeline(trace, 3)
