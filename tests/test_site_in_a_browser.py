"""The site as a reader uses it: search, filter, solutions, traces, copying; at three widths."""

import hashlib
import re

import pytest
from test_site import LESSONS
from touching import touch

from course.recording import recorded_lesson
from helpers.trace import read_trace

pytestmark = pytest.mark.browser
CODE_CUT = "parts => parts.filter(part => part.scrollWidth > part.clientWidth + 1).map(part => part.textContent)"
SIZE = """["navigation", "resource"].flatMap(kind => performance.getEntriesByType(kind))
  .reduce((sum, entry) => sum + entry.encodedBodySize, 0)"""
WIDER = "document.documentElement.scrollWidth - innerWidth"
PERFETTO = """<output></output><script>addEventListener("message", async ({data, source}) => {
  if (data === "PING") return source.postMessage("PONG", "*");
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", data.perfetto.buffer));
  const hex = Array.from(digest, byte => byte.toString(16).padStart(2, "0")).join("");
  document.querySelector("output").textContent = hex;
})</script>"""


@pytest.fixture
def page(served, chromium):
    """A page of which no request may leave this machine; Perfetto's address is answered here."""
    context = chromium.new_context(viewport={"width": 1280, "height": 900})
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    asked = []
    context.on("request", lambda request: asked.append(request.url))
    context.route("https://**", lambda route: route.fulfill(body=PERFETTO, content_type="text/html"))
    page = context.new_page()
    page.address, page.asked = served, asked
    yield page
    assert all(url.startswith((served, "data:", "https://ui.perfetto.dev/")) for url in asked)


@pytest.mark.parametrize(
    ("words", "first"),
    [
        ("906", "Failure gallery"),
        ("dropout", "Replay random numbers"),
        ("memory pool", "Share memory pools"),
        ("torch.compile", "Let torch.compile capture"),
        ("static input", "Capture and replay"),
        ("DDP", "Train on several GPUs"),
    ],
)
def test_the_search_puts_a_topics_own_lesson_first(page, words, first):
    page.goto(f"{page.address}/search.html?q={words}")
    results = page.locator("#search-results li a")
    results.first.wait_for()
    assert results.first.text_content() == first
    if words == "906":
        page.get_by_text(re.compile("found .* pages")).wait_for()
        assert {"Glossary", "Capture a training step"} <= set(results.all_text_contents())


def test_the_gallery_opens_with_its_index_and_a_filter(page):
    page.goto(f"{page.address}/notebooks/24_failure_gallery.html")
    assert page.locator("article h2").first.text_content().startswith("Index")
    rows = page.locator("#index tbody tr:visible")
    exhibits = page.locator("section:not(#exercises) > section > h3:visible")
    everything = rows.count()
    box = page.get_by_label("Filter the exhibits")
    box.fill("default stream 906")
    assert 0 < rows.count() < everything / 4 and exhibits.count() <= rows.count()
    assert page.get_by_role("heading", name="The default stream drawn in").is_visible()
    assert f"of {everything}" in page.locator("label.filter output").text_content()
    box.fill("")
    assert rows.count() == everything


def test_a_solution_is_folded_at_its_exercise(page):
    page.goto(f"{page.address}/notebooks/00_start_here.html")
    solutions = page.locator("details.solution")
    assert solutions.count() == 3 and not solutions.first.locator("pre").is_visible()
    solutions.first.locator("summary").press("Enter")
    assert "def idle_share(" in solutions.first.locator("pre").inner_text()


def test_code_is_copied_by_a_button(page):
    page.goto(f"{page.address}/notebooks/00_start_here.html")
    cell = page.locator("div.highlight", has_text='lesson("start_here")').first
    cell.hover()
    cell.locator("button.copybtn").click()
    page.wait_for_function("navigator.clipboard.readText().then(text => text.includes('lesson(\"start_here\")'))")


def test_a_trace_is_fetched_and_handed_to_perfetto_by_a_click(page):
    page.goto(f"{page.address}/notebooks/00_start_here.html", wait_until="networkidle")
    assert not any("json.gz" in url or "perfetto.dev" in url for url in page.asked)
    trace = recorded_lesson("start_here").trace("eager")
    with page.expect_popup() as popup:
        page.get_by_role("button", name="Open in Perfetto").first.click()
    seen = hashlib.sha256(trace.read_bytes()).hexdigest()
    popup.value.get_by_text(seen).wait_for()
    with page.expect_download() as download:
        page.get_by_role("link", name="eager.json.gz").click()
    assert download.value.path().read_bytes() == trace.read_bytes()


def test_a_step_is_touched_and_without_scripts_read(page, chromium):
    recording = recorded_lesson("capture_training_step")
    files = {"eager": "eager", "whole-step graph": "whole_step"}
    traces = {name: read_trace(recording.trace(file)) for name, file in files.items()}
    address = f"{page.address}/notebooks/03_capture_training_step.html"
    page.goto(address)
    touch(page.locator("figure.timeline"), traces, 3)
    context = chromium.new_context(java_script_enabled=False)
    plain = context.new_page()
    plain.goto(address)
    assert plain.get_by_text("Where scripts run, here is a timeline").is_visible()
    assert plain.locator("img[alt*='timelines(traces']").is_visible()
    context.close()


def test_pages_fit_the_screen_and_a_lessons_page_is_below_3_mb(page):
    sides = "cells => cells.map(cell => getComputedStyle(cell).textAlign)"
    for path in [f"notebooks/{lesson.stem}" for lesson in LESSONS] + ["index", "docs/glossary", "docs/cheat_sheet"]:
        page.goto(f"{page.address}/{path}.html")
        if path.startswith("notebooks/"):
            assert 1e5 < page.evaluate(SIZE) < 3e6, path
        for width in (390, 800, 1280):
            page.set_viewport_size({"width": width, "height": 900})
            assert page.evaluate(WIDER) <= 0, (path, width)
        assert page.locator("article .cell_input pre").evaluate_all(CODE_CUT) == [], path
        assert set(page.locator("article :is(th, td)").evaluate_all(sides)) <= {"left"}, path
