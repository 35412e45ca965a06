"""What browsers try in JupyterLab and on the site alike: a timeline by mouse and keys, Perfetto's button, the looks."""

import hashlib
import re

from course.recordings.recording import recorded_lesson
from course.touch.timeline import timeline_data
from helpers.charts import COLOURS
from helpers.trace import read_trace
from tests.support.lab_page import expect

LANE, START, LONG, NAME, SAID, PARTNERS = range(6)
CUT = "parts => parts.filter(part => part.scrollWidth > part.clientWidth + 1).map(part => part.textContent)"
BREAKS, SIDES = (f"parts => parts.map(part => getComputedStyle(part).{name})" for name in ("wordBreak", "textAlign"))
# a page that answers as Perfetto's does, PONG for PING, and then says what it was handed
PERFETTO = """<!doctype html><title>stand-in</title><output></output><script>
  addEventListener("message", async ({data, source, origin}) => {
    if (data === "PING") return source.postMessage("PONG", origin);
    const {buffer, title, fileName} = data.perfetto;
    const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", buffer));
    const hex = Array.from(digest, byte => byte.toString(16).padStart(2, "0")).join("");
    document.querySelector("output").textContent = [buffer.byteLength, title, fileName, hex].join(" ");
  });
</script>"""


def handed(trace, name):
    """What that page says of a trace's file that it was handed under a name."""
    return f"{trace.stat().st_size} {name} {name} {hashlib.sha256(trace.read_bytes()).hexdigest()}"


def touch(figure, lesson, names, step=3):
    """Hover, zoom, switch and walk on a figure that explore has drawn of two of a lesson's recorded traces."""
    traces = {name: read_trace(recorded_lesson(lesson).trace(name)) for name in names}
    page, plot, said, scale = figure.page, figure.locator("svg"), figure.locator("output"), figure.locator("svg text")
    data = timeline_data(traces, step)
    (_, bars), (_, others) = data["variants"]
    on_gpu = [bar for bar in bars if "GPU stream" in data["lanes"][bar[LANE]][0]]

    longest = max(on_gpu, key=lambda bar: bar[LONG])
    gpu_lane = figure.locator(f'rect[fill="{COLOURS["GPU busy time"]}"]')
    figure.scroll_into_view_if_needed()
    box = gpu_lane.nth(on_gpu.index(longest)).bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 5)
    expect(said).to_contain_text(longest[NAME])
    assert re.search(r"^[\d.]+ us on GPU stream \d+, .*; launched [\d.]+ us before, by cuda", longest[SAID])
    expect(said).to_contain_text(longest[SAID])
    expect(figure.locator("rect.partner")).to_have_count(1)

    ticks = scale.all_text_contents()
    first, second = figure.get_by_role("radio").all()
    first.focus()
    page.keyboard.press("ArrowRight")
    expect(second).to_be_checked()
    expect(figure.locator("rect")).to_have_count(len(others))
    assert [text for text in scale.all_text_contents() if " us" in text] == [text for text in ticks if " us" in text]
    page.keyboard.press("ArrowLeft")
    expect(figure.locator("rect")).to_have_count(len(bars))

    for _ in range(4):  # past the buttons
        page.keyboard.press("Tab")
    expect(plot).to_be_focused()
    launch = next(bar for bar in bars if bar[PARTNERS])
    for key, bar in (("ArrowDown", bars[0]), ("ArrowDown", launch), ("ArrowDown", bars[launch[PARTNERS][0]])):
        page.keyboard.press(key)
        expect(said).to_contain_text(bar[SAID])
    page.keyboard.press("Enter")
    expect(figure.locator("rect")).not_to_have_count(len(bars))
    expect(figure.locator("rect.chosen")).to_have_count(1)
    page.keyboard.press("Escape")
    expect(figure.locator("rect")).to_have_count(len(bars))
    for name, same in (("zoom in", False), ("zoom out", True), ("zoom in", False), ("whole step", True)):
        figure.get_by_role("button", name=name).click()
        assert (scale.all_text_contents() == ticks) == same
