"""The report as one file, opened from the disk in Chromium."""

import pytest

from course.recordings.recording import find_recording
from tests.support.pictures import data_of
from tests.support.timeline_figure import check_interactions
from trace_report.page import page as report
from trace_report.trace import read_trace

pytestmark = pytest.mark.browser


@pytest.fixture
def opened(new_context, tmp_path):
    """Open the report of two recorded traces in a context with these options; return the page, the
    report's text, and what the page has asked for or complained about.
    """
    recording = find_recording("start_here")
    files = {
        "eager": "eager",
        "a_long_name_of_a_file_as_others_write_them_rank_0": "whole_step_graph",
    }
    traces = {name: read_trace(recording.trace(file)) for name, file in files.items()}
    path = tmp_path / "report.html"
    path.write_text(report(traces), encoding="utf-8")

    def open_report(**options):
        page = new_context(**options).new_page()
        heard = []
        page.on("request", lambda request: heard.append(request.url))
        page.on("console", lambda message: heard.append(message.text))
        page.on("pageerror", lambda error: heard.append(str(error)))
        page.goto(path.as_uri())
        heard.remove(path.as_uri())
        return page, path.read_text(), heard

    return open_report


def test_the_timeline_answers_mouse_and_keys_and_nobody_is_asked_for_anything(opened):
    page, text, heard = opened(viewport={"width": 1280, "height": 900})
    check_interactions(page.locator("figure.timeline"), data_of(text))
    assert heard == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_it_fits_in_both_themes(opened, scheme, width):
    size = {"width": width, "height": 800}
    page, _, heard = opened(viewport=size, color_scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth") == width and heard == []
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert ground == ("rgb(255, 255, 255)" if scheme == "light" else "rgb(18, 18, 18)")
    turned = page.locator(".bars").evaluate("table => getComputedStyle(table).filter")
    assert (turned == "none") == (scheme == "light")


def test_without_scripts_the_numbers_are_there(opened):
    page, _, _ = opened(java_script_enabled=False)
    assert page.locator(".bars span").count() == 6
    assert "Where scripts run" in page.locator("figure").inner_text()


def test_on_a_telephone_a_tap_names_a_bar(opened):
    page, text, _ = opened(viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    figure, data = page.locator("figure.timeline"), data_of(text)
    bar = max(data["variants"][0][1], key=lambda one: one[2])
    figure.scroll_into_view_if_needed()
    box = figure.locator("svg").bounding_box()
    at = box["x"] + (bar[1] + bar[2] / 2) / data["end"] * box["width"]
    page.touchscreen.tap(at, box["y"] + bar[0] * 46 + 30)
    assert bar[3] in figure.locator("output").inner_text()
