import itertools

import matplotlib

matplotlib.use("agg")

import matplotlib.pyplot as plt
import pandas as pd
import pytest

from helpers.charts import WIDTH, cpu_gpu_chart, timeline, timelines
from tests.support.traces import event, kernel, launch, step

BUSY_US = {"eager": 290.0, "graph": 295.0}


@pytest.fixture(autouse=True)
def close_figures():
    yield
    plt.close("all")


@pytest.fixture
def rounds():
    times = (("eager", 900, 1000), ("graph", 20, 300))
    rows = [(i, name, host + i, wall + i) for i in range(4) for name, host, wall in times]
    return pd.DataFrame(rows, columns=["round", "variant", "host_us", "step_us"])


def test_the_bars_are_the_medians(rounds):
    axes = cpu_gpu_chart(rounds, BUSY_US)
    widths = {
        bars.get_label(): [bar.get_width() for bar in bars]
        for bars in axes.containers
        if hasattr(bars, "patches")
    }
    assert widths == {
        "host time": [901.5, 21.5],
        "GPU busy time": [290, 295],
        "step time": [1001.5, 301.5],
    }
    assert [label.get_text() for label in axes.get_yticklabels()] == ["eager", "graph"]
    assert axes.get_xlabel() == "time per step (bar: median, whisker: quartiles), µs"


def shown_whole(axes):
    """Whether all is inside the figure, which fits next to JupyterLab's file browser, in 10 pt."""
    figure = axes.figure
    figure.canvas.draw()
    box = figure.get_tightbbox()
    texts = [text for text in figure.findobj(matplotlib.text.Text) if text.get_text()]
    sizes = [text.get_fontsize() for text in texts if text.get_visible()]
    assert figure.get_figwidth() == WIDTH <= 7 and min(sizes) >= 10
    return box.x0 > -0.1 and box.x1 < WIDTH + 0.1


def test_the_chart_is_no_wider_than_the_page(rounds):
    assert shown_whole(cpu_gpu_chart(rounds, BUSY_US, title="A sentence. " * 9))


def test_without_a_title_a_chart_says_its_finding(rounds, read_events):
    title = cpu_gpu_chart(rounds, BUSY_US).figure.get_suptitle()
    assert title == "A step takes 302 µs (graph); the GPU works for 295 µs."
    found = cpu_gpu_chart(rounds).figure.get_suptitle()
    assert found == "A step takes 302 µs (graph); the CPU issues it in 21.5 µs."
    trace = read_events(step(0, 0, 50), launch(5, 1), kernel(10, 5, 1))
    assert timeline(trace).figure.get_suptitle() == "The GPU works for 5 µs of 15 µs."
    both = timelines({"eager": trace, "graph": trace})[0].figure.get_suptitle()
    assert both == "The GPU works for 5 µs of 15 µs (eager), 5 µs of 15 µs (graph)."


def test_a_step_without_gpu_work_is_drawn(read_events):
    trace = read_events(step(0, 0, 50), launch(5, 1), kernel(10, 5, 1), step(1, 50, 50))
    assert timeline(trace, 1, end_us=50).figure.get_suptitle() == "The GPU works for 0 µs of 0 µs."


def test_names_of_narrow_ranges_do_not_overlap(read_events):
    ranges = [event("user_annotation", f"## forward_{i} ##", i * 5, 4) for i in range(3)]
    axes = timeline(read_events(step(0, 0, 1000), *ranges, launch(5, 1), kernel(900, 99, 1)))
    axes.figure.canvas.draw()
    boxes = [text.get_window_extent() for text in axes.texts]
    assert len(boxes) == 3
    assert not any(a.overlaps(b) for a, b in itertools.combinations(boxes, 2))


def test_an_optimizers_range_is_named_once(read_events):
    said = ["Optimizer.zero_grad#SGD.zero_grad", "batch #3", "Optimizer.step#SGD.step"]
    ranges = [event("user_annotation", name, 400 * i, 4) for i, name in enumerate(said)]
    axes = timeline(read_events(step(0, 0, 1000), *ranges, launch(5, 1), kernel(900, 99, 1)))
    assert [text.get_text() for text in axes.texts] == ["SGD.zero_grad", "batch #3", "SGD.step"]


def test_names_without_room_are_left_out(read_events):
    ranges = [event("user_annotation", f"a_rather_long_name_{i}", i * 5, 4) for i in range(9)]
    trace = read_events(step(0, 0, 1000), *ranges, launch(5, 1), kernel(900, 99, 1))
    assert len(timeline(trace).texts) == 2
    assert shown_whole(timeline(trace, end_us=12))


def test_before_and_after_share_their_time_axis(read_events):
    slow = read_events(step(0, 0, 900), launch(5, 1), kernel(800, 100, 1), name="slow.json")
    fast = read_events(step(0, 7, 50), launch(12, 1), kernel(17, 5, 1, stream=9), name="fast.json")
    before, after = timelines({"eager": slow, "graph": fast})
    assert before.get_xlim() == after.get_xlim() == (0, 909)
    assert [axes.get_title(loc="left") for axes in (before, after)] == ["eager", "graph"]
    assert timeline(fast, end_us=900).get_xlim() == (0, 909)
    assert shown_whole(before)


def test_streams_of_two_gpus_have_lanes_of_their_own(read_events):
    kernels = [kernel(10, 5, 1), kernel(10, 5, 2, device=1)]
    trace = read_events(step(0, 0, 50), launch(5, 1), launch(6, 2), *kernels)
    labels = [label.get_text() for label in timeline(trace).get_yticklabels()]
    assert labels[2:] == ["GPU 0, stream 7", "GPU 1, stream 7"]
