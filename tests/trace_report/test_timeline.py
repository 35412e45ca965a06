"""What a timeline to touch says of each bar; tests/support/timeline_figure.py tries it in
browsers.
"""

import pytest
from matplotlib.colors import to_hex

from tests.support.traces import event, kernel, launch, step
from trace_report.lanes import COLOURS
from trace_report.lanes import timeline as draw_timeline
from trace_report.timeline import timeline_data


@pytest.fixture
def trace(read_events):
    forward = event("user_annotation", "## forward ##", 1, 20)
    inside = event("user_annotation", "inside", 2, 5)
    ranges = [forward, inside, step(0, 0, 50), step(1, 60, 40)]
    wait = event("cuda_runtime", "cudaDeviceSynchronize", 30, 9)
    calls = [launch(5, 1), launch(8, 2, "cudaGraphLaunch"), wait]
    work = [kernel(10, 4, 1), kernel(15, 3, 2), kernel(19, 1.5, 2), launch(61, 3), kernel(63, 2, 3)]
    return read_events(*ranges, *calls, *work)


def test_each_bar_says_how_long_it_is_and_who_launched_whom(trace):
    data = timeline_data({"a": trace}, 0)
    found = [lane for lane, _ in data["lanes"]]
    assert found == ["host ranges", "launches", "waits", "GPU stream 7"]
    ((name, bars),) = data["variants"]
    assert name == "a" and data["end"] == 39
    calls = ["cudaLaunchKernel", "cudaGraphLaunch", "cudaDeviceSynchronize"]
    assert [bar[3] for bar in bars] == ["forward", *calls, *"kkk"]
    assert [bar[4] for bar in bars] == [
        "20 µs on the host, from 1 µs to 21 µs.",
        "1 µs on the host, from 5 µs to 6 µs; starts k (4 µs), 5 µs after it was called.",
        "1 µs on the host, from 8 µs to 9 µs; "
        "starts 2 kernels and copies, the first 7 µs after it was called.",
        "9 µs on the host, from 30 µs to 39 µs.",
        "4 µs on GPU stream 7, from 10 µs to 14 µs; launched 5 µs before, by cudaLaunchKernel.",
        "3 µs on GPU stream 7, from 15 µs to 18 µs; "
        "launched 7 µs before, by cudaGraphLaunch, which started 1 more.",
        "1.5 µs on GPU stream 7, from 19 µs to 20.5 µs; "
        "launched 11 µs before, by cudaGraphLaunch, which started 1 more.",
    ]
    assert [bar[5] for bar in bars] == [[], [4], [5, 6], [], [1], [2], [2]]


@pytest.fixture
def crossed(read_events):
    """A step of 50 µs that begins at 3 µs, and GPU work of no step: before, meanwhile, too long."""
    ranged = event("user_annotation", "forward", 1, 20)
    wait = event("cuda_runtime", "cudaDeviceSynchronize", 30, 9)
    others = [kernel(-3, 2, 90), kernel(0, 4, 91, stream=9), kernel(38, 5, 92)]
    return read_events(step(0, 0, 50), ranged, launch(5, 1), wait, kernel(10, 30, 1), *others)


def test_work_of_no_step_is_shown_as_far_as_it_runs_in_the_step(crossed):
    ((_, bars),) = timeline_data({"a": crossed}, 0)["variants"]
    assert [(start, dur) for _, start, dur, *_, other in bars if other] == [(0, 4)]


def test_bars_and_ties_are_drawn_where_the_events_are(crossed):
    """On paper: (from, to, top, bottom, colour, opacity), from above; ties end at the bars."""
    axes = draw_timeline(crossed)
    bars = []
    for lane in axes.collections[:-1]:
        for path in lane.get_paths():
            (left, top), (right, bottom) = path.get_extents().get_points().round(2)
            bars.append(
                (left, right, top, bottom, to_hex(lane.get_facecolor()[0]), lane.get_alpha())
            )
    host, launched, waiting, busy = (
        COLOURS[name].lower() for name in ("host time", "launch", "waiting", "GPU busy time")
    )
    assert bars == [
        (1, 21, -0.35, 0.35, host, 0.75),
        (5, 6, 0.65, 1.35, launched, None),
        (30, 39, 0.65, 1.35, waiting, None),
        (10, 40, 1.65, 2.35, busy, None),
        (0, 4, 2.65, 3.35, busy, 0.3),
    ]
    (tie,) = axes.collections[-1].get_segments()
    assert tie.tolist() == [[5, 1.35], [10, 1.65]]
    assert axes.get_xlim() == (0, pytest.approx(40.4))


def test_a_name_beside_its_bar_is_tied_to_it(read_events):
    names = [
        event("user_annotation", name, at, 4) for name, at in (("load_batch", 0), ("forward", 5))
    ]
    axes = draw_timeline(read_events(step(0, 0, 99), *names, launch(5, 1), kernel(9, 90, 1)))
    texts = {text.get_text(): text.get_position()[0] for text in axes.texts}
    assert texts["load_batch"] == 0 and texts["forward"] > 9
    (tie,) = axes.lines
    assert tie.get_xdata().tolist() == [7, texts["forward"]]


def test_a_step_that_does_not_wait_has_no_lane_of_waits(read_events):
    wait = event("cuda_runtime", "cudaDeviceSynchronize", 60, 9)
    axes = draw_timeline(read_events(step(0, 0, 50), launch(5, 1), kernel(9, 9, 1), wait))
    assert "launches" in [label.get_text() for label in axes.get_yticklabels()]


def test_traces_share_the_lanes_and_the_scale(trace, read_events):
    other = read_events(
        step(0, 0, 90), launch(5, 1), kernel(80, 5, 1, stream=19), name="other.json"
    )
    data = timeline_data({"a": trace, "b": other}, 0)
    assert [lane for lane, _ in data["lanes"]][-2:] == ["GPU stream 7", "GPU stream 19"]
    assert data["end"] == 85
