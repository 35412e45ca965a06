"""The site as a reader uses it: search, filter, solutions, traces, copying; at three widths."""

import re

import pytest

from course.lessons import lesson_file
from course.recordings.recording import find_recording
from helpers.trace import read_trace
from tests.support.lab_page import expect
from tests.support.notebooks import RECORDED
from tests.support.timeline_figure import CUT, PERFETTO, SIDES, check_hover, report_of_trace_file
from trace_report.timeline import timeline_data

pytestmark = pytest.mark.browser
SIZE = """["navigation", "resource"].flatMap(kind => performance.getEntriesByType(kind))
  .reduce((sum, entry) => sum + entry.encodedBodySize, 0)"""
FIT = "article :is(.cell_input pre, .cell_output pre, .text_html:has(table), table)"
RIGHTS = "all => all.map(one => one.getBoundingClientRect().right)"
WIDER = "document.documentElement.scrollWidth - innerWidth"


def lesson_page(name):
    return f"notebooks/{lesson_file(name).stem}"


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_charts_show_the_side_bar_leads_on_and_the_theme_is_the_readers(page, theme):
    page.emulate_media(color_scheme=theme)
    for name, charts in (("README", 2), (lesson_page("start_here"), 2)):
        page.goto(f"{page.address}/{name}.html", wait_until="networkidle")
        of_each = "images => images.map(image => image.naturalWidth)"
        widths = page.eval_on_selector_all("main img", of_each)
        assert len(widths) == charts and min(widths) > 400, name
        ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (ground == "rgb(255, 255, 255)") == (theme == "light")
    page.get_by_role("link", name="Share memory pools").first.click()
    page.get_by_role("heading", level=1, name="Share memory pools").wait_for()


def test_the_gallery_opens_with_its_index_and_a_filter(page):
    page.goto(f"{page.address}/{lesson_page('failure_gallery')}.html")
    assert page.locator("article h2").first.text_content().startswith("Index")
    rows = page.locator("#index tbody tr:visible")
    exhibits = page.locator("section:not(#exercises) > section > h3:visible")
    everything = rows.count()
    box = page.get_by_label("Filter the exhibits")
    box.fill("default stream 906")
    assert 0 < rows.count() < everything / 4 and exhibits.count() <= rows.count()
    assert page.get_by_role("heading", name="Legacy default stream in a capture").is_visible()
    assert f"of {everything}" in page.locator("label.filter output").text_content()
    box.fill("")
    assert rows.count() == everything
    headings = page.locator(".bd-sidebar-secondary a")
    assert max(headings.evaluate_all(RIGHTS)) <= page.viewport_size["width"]


def test_a_solution_is_folded_at_its_exercise(page):
    page.goto(f"{page.address}/{lesson_page('start_here')}.html")
    solutions = page.locator("details.solution")
    assert solutions.count() == 3 and not solutions.first.locator("pre").is_visible()
    solutions.first.locator("summary").press("Enter")
    assert "def time_step(" in solutions.first.locator("pre").inner_text()


def test_a_trace_is_fetched_and_handed_to_perfetto_by_a_click(page):
    """Perfetto's address is answered here; here alone, as Chromium keeps no file for the next page
    where it asks us.
    """
    page.context.route(
        "https://**", lambda route: route.fulfill(body=PERFETTO, content_type="text/html")
    )
    page.goto(f"{page.address}/{lesson_page('start_here')}.html", wait_until="networkidle")
    assert not any("json.gz" in url or "perfetto.dev" in url for url in page.asked)
    trace = find_recording("start_here").trace("eager")
    with page.expect_popup() as popup:
        page.get_by_role("button", name="Open in Perfetto").first.click()
    popup.value.get_by_text(report_of_trace_file(trace, "eager.json.gz")).wait_for()
    with page.expect_download() as download:
        page.get_by_role("link", name="eager.json.gz").click()
    assert download.value.path().read_bytes() == trace.read_bytes()


def test_the_capture_plays_and_stops(page):
    page.goto(f"{page.address}/{lesson_page('capture_training_step')}.html")
    moment, slider = page.locator(".capture output"), page.get_by_role("slider")
    whole, said = moment.text_content(), page.locator(".said").all_text_contents()
    assert "GPU busy for" in said[0] and "become nodes" in said[1] and "at most" in said[2]
    page.get_by_role("button", name="Play").click()
    expect(moment).to_have_text(re.compile(r"^(5[1-9]|[6-9]\d|\d{3,}) µs"))
    assert "waiting: " in page.locator(".said").first.text_content()
    page.get_by_role("button", name="Stop").click()
    stopped = moment.text_content()
    assert stopped != whole and page.get_by_role("button", name="Play").is_visible()
    slider.press("Home")
    assert moment.text_content() == "0 µs"
    slider.press("ArrowRight")
    assert moment.text_content() == "10 µs"
    slider.press("End")
    assert page.locator(".said").all_text_contents() == said


def test_a_step_is_touched_and_without_scripts_read(page, new_context):
    address = f"{page.address}/{lesson_page('profile_eager_training')}.html"
    page.goto(address)
    figure = page.locator("figure.timeline")
    figure.scroll_into_view_if_needed()
    trace = read_trace(find_recording("profile_eager_training").trace("eager"))
    data = timeline_data({"batch of 640": trace}, step=3)
    check_hover(figure, data["lanes"], data["variants"][0][1])
    context = new_context(java_script_enabled=False)
    plain = context.new_page()
    plain.goto(address)
    assert plain.get_by_text("Where scripts run, here is a timeline").is_visible()
    picture = plain.locator("img[alt*='time since the step began']").first
    box = picture.bounding_box()
    assert box["width"] > 500 and box["height"] > 250
    context.close()


@pytest.mark.weekly
def test_pages_fit_the_screen_and_a_lessons_page_is_below_3_mb(page):
    widths = [1280, 800, 390]
    others = ["index", "explain", "README", "docs/glossary", "docs/cheat_sheet"]
    for path in [*(f"notebooks/{lesson.stem}" for lesson in RECORDED), *others]:
        page.goto(f"{page.address}/{path}.html")
        if path.startswith("notebooks/"):
            assert 1e5 < page.evaluate(SIZE) < 3e6, path
        for width in widths:
            page.set_viewport_size({"width": width, "height": 900})
            assert page.evaluate(WIDER) <= 0, (path, width)
            if width == 800:
                assert page.locator(FIT).evaluate_all(CUT) == [], path
            if width == 1280:
                assert page.locator("article .cell_input pre").evaluate_all(CUT) == [], path
                sides = set(page.locator("article :is(th, td)").evaluate_all(SIDES))
                assert sides <= {"left"}, path
        widths.reverse()  # the next page opens at this width
