"""Pictures that one can touch: what they say, and that they ask nobody for anything. In a browser:
the site's tests.
"""

import re
from urllib.parse import unquote
from xml.etree import ElementTree

import pytest

from course.recordings.recording import find_recording
from course.touch.capture import HERE, TimelinePhase, animate_capture, phase_text, trace_phase
from cpu_graph.svg import img_tag
from helpers.trace import read_trace
from tests.support.pictures import data_of
from tests.support.traces import event, kernel, launch, step
from trace_report.touch import touchable_html


@pytest.fixture(scope="module")
def recorded_traces():
    recording = find_recording("capture_training_step")
    return {name: read_trace(recording.trace(name)) for name in ("eager", "whole_step")}


def test_what_is_launched_and_not_begun_waits(read_events):
    forward = event("user_annotation", "## forward ##", 5, 40)
    first = [step(0, 0, 100), forward, event("user_annotation", "in", 6, 1)]
    second = [step(1, 100, 50), event("cuda_runtime", "cudaDeviceSynchronize", 120, 30)]
    work = [launch(10 * number, number) for number in (1, 2, 3)]
    work += [kernel(25, 10, 1), kernel(35, 5, 2), kernel(90, 20, 3)]
    found = trace_phase("eager", read_events(*first, *second, *work), 0, 100)
    assert found.queue == [(0, 0), (10, 1), (20, 2), (25, 1), (30, 2), (35, 1), (90, 0)]
    assert found.cpu == [(5, 45, "forward")] and found.launches == [10, 20, 30]
    assert found.gpu == [(25, 35), (35, 40), (90, 100)] and found.done == []
    said = "0 steps done, at most 2 waiting, the GPU busy for 25% of the time"
    assert phase_text(found, 100) == said
    later = trace_phase("eager", read_events(*first, *second, *work), 100, 50)
    assert later.cpu == [(20, 50, "waits")] and later.gpu == [(0, 10)] and later.done == [10]


def test_eager_capture_and_replay_come_from_the_traces(recorded_traces):
    data = data_of(animate_capture(recorded_traces).data)
    eager, capture, replay = (TimelinePhase(**one) for one in data["phases"])
    launches = int(recorded_traces["eager"].per_step().launches[3])
    assert len(eager.launches) == launches == capture.queue[-1][1] and capture.gpu == []
    of_graph = recorded_traces["whole_step"].gpu
    assert launches == (of_graph.graph & (of_graph.step == 0)).sum(), "a node for each launch"
    most = {one.name: max(count for _, count in one.queue) for one in (eager, replay)}
    assert most["eager"] <= 3 and most["replay"] > launches
    assert len(eager.done) == 1 < len(replay.done)
    assert eager.queue[-1][1] == 0
    assert all(count >= 0 for one in (eager, replay) for _, count in one.queue)
    with pytest.raises(IndexError, match="steps 0 to 6, not 7"):
        animate_capture(recorded_traces, step=7)


def test_words_of_a_trace_cannot_become_code():
    strange = """'"></figure><script>alert(1)</script>&amp;"""
    html = touchable_html("capture", img_tag("<svg/>", strange), strange, HERE)
    assert html.count("<script>") == html.count("</figure>") == 1 and data_of(html) == strange


def test_svg_is_well_formed_whatever_ranges_are_called(read_events):
    strange = event("user_annotation", "<a> & 'b\"", 0, 99)
    trace = read_events(step(0, 0, 100), strange, launch(10, 1), kernel(25, 10, 1))
    html = animate_capture({"eager": trace, "graph": trace}, step=0).data
    svg = unquote(re.search(r'svg\+xml,([^"]+)', html)[1])
    assert "<a> & 'b\"" in "".join(ElementTree.fromstring(svg).itertext())
