"""Lessons as a learner meets them: `make lab`, in a real browser."""

import re
import socket
from contextlib import closing

import pytest

from course.lab_address import UNSAID
from course.lessons import lesson_file
from course.paths import NOTEBOOKS, ROOT
from tests.support.answers import solution_source
from tests.support.lab import Lab
from tests.support.lab_page import Notebook, expect
from tests.support.machine import wait_for
from tests.support.timeline_figure import CUT

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """Its port was taken: the last line names the next one."""
    with socket.create_server(("localhost", 0)) as taken:
        port = taken.getsockname()[1]
        lab = Lab(tmp_path_factory.mktemp("course"), port)
    assert lab.about["port"] != port
    said = wait_for(lambda: "Ready: " in (text := lab.log.read_text()) and text.splitlines())
    assert said[0] == "Starting JupyterLab; Ctrl-C here ends it."
    first = f"lab/tree/my_lessons/{lesson_file('start_here').name}"
    assert said[-1] == f"Ready: open {lab.address(first)}"
    kernel = lab.request("api/kernelspecs")["kernelspecs"]["python3"]["spec"]
    assert "--ext=course.lesson" in kernel["argv"], "%%gpu is known before the first cell was run"
    yield lab
    lab.stop()


@pytest.fixture(scope="module")
def profile(new_context):
    """One profile of Chromium, which keeps JupyterLab's scripts from one page to the next."""
    with closing(new_context(viewport={"width": 1280, "height": 900})) as profile:
        yield profile


@pytest.fixture
def open_page(profile, request):
    """Open an address in a new window; in the end, nothing may have asked another machine for
    anything.
    """
    asked = []

    def ask(request):
        asked.append(request.url)

    profile.on("request", ask)

    def open_page(address):
        page = profile.new_page()
        page.on("websocket", ask)
        page.goto(address)
        return page

    yield open_page
    for number, page in enumerate(profile.pages):
        if request.node.stash.get("failed", False):
            name = f"{request.node.name}-{number}.png"
            page.screenshot(path=ROOT / "tests" / "screenshots" / name)
        page.close()
    profile.remove_listener("request", ask)
    here = ("http://localhost:", "ws://localhost:", "data:", "blob:")
    assert asked and [url for url in asked if not url.startswith(here)] == []


def test_start_here_from_top_to_bottom(lab, open_page):
    start = Notebook(lab, open_page(lab.address()), f"my_lessons/{lesson_file('start_here').name}")
    files = start.page.locator(".jp-DirListing-itemText")
    expect(files).to_have_count(2 + len(list(NOTEBOOKS.glob("*.ipynb"))))  # solutions, progress
    assert files.evaluate_all(CUT) == [], "the lessons' names are shown whole"
    start.run_all()
    expect(start.page.locator("[data-mime-type$='jupyter.error']")).to_have_count(0)
    chart = start.page.locator(".jp-Notebook :is(.jp-RenderedImage img, img.chart)")
    assert chart.evaluate("image => image.naturalWidth") > 400
    assert "µs" in chart.get_attribute("alt"), "its finding"

    answer, check = start.cell("def time_step("), start.cell("check_capture(time_step)")
    expect(check).to_contain_text("○ time_step is as the lesson gives it: yours to change.")
    solution = solution_source(lesson_file("start_here"), "time_step")
    idle = "    torch.cuda.synchronize()\n    start ="  # the GPU is idle when the clock starts
    for code, message in (
        (solution.replace(idle, "    start ="), r"✗ time_step: The step time is \S+ µs, and it"),
        (solution, "✓ time_step is right"),
    ):
        start.write(answer, code)
        start.run(answer)
        start.run(check)
        expect(check).to_contain_text(re.compile(message))
    last, progress = start.code.last, start.page.locator(".jp-MarkdownViewer")
    expect(last).to_contain_text("Next lesson: Profile eager training.")
    last.get_by_role("link", name="Your progress").click()
    expect(progress).to_contain_text(re.compile(r"^\s*1 of \d+ exercises solved"))
    expect(last).to_be_visible()
    said = lab.log.read_text()
    assert not [line for line in (*UNSAID, "without encryption") if line in said]
