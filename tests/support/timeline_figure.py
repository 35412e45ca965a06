"""What browsers try in JupyterLab and on the site alike: a timeline by mouse and keys, Perfetto's
button, the looks.
"""

import hashlib
import re

from helpers.charts import COLOURS
from tests.support.lab_page import expect

LANE, START, LONG, NAME, SAID, PARTNERS = range(6)
CUT = (
    "parts => parts.filter(part => part.scrollWidth > part.clientWidth + 1).map(part => "
    "part.textContent)"
)
SIDES = "parts => parts.map(part => getComputedStyle(part).textAlign)"
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


def report_of_trace_file(trace, name):
    """What that page says of a trace's file that it was handed under a name."""
    return f"{trace.stat().st_size} {name} {name} {hashlib.sha256(trace.read_bytes()).hexdigest()}"


def check_interactions(figure, data):
    """Hover, switch, walk and zoom on a figure drawn of data of timeline_data, two traces."""
    (_, bars), (_, others) = data["variants"]
    figure.scroll_into_view_if_needed()
    ticks = texts_of(figure)
    check_names(figure, bars, data["end"])
    check_hover(figure, data["lanes"], bars)
    check_arrow_keys(figure, bars, others, ticks)
    check_walking(figure, bars)
    check_zoom(figure, ticks)


def check_names(figure, bars, end):
    """A bar of the first lane bears its name where that fits: 7 pixels a letter."""
    width = figure.locator("svg").evaluate("plot => plot.clientWidth")
    first_lane = [bar for bar in bars if bar[LANE] == 0]
    fits = [bar[NAME] for bar in first_lane if bar[LONG] / end * width > 7 * len(bar[NAME])]
    assert figure.locator("text.inside").all_text_contents() == fits


def check_hover(figure, lanes, bars):
    """The longest bar of the GPU's says what it is, and its launch is marked."""
    said = figure.locator("output")
    on_gpu = [bar for bar in bars if "GPU stream" in lanes[bar[LANE]][0]]
    longest = max(on_gpu, key=lambda bar: bar[LONG])
    gpu_lane = figure.locator(f'rect[fill="{COLOURS["GPU busy time"]}"]')
    box = gpu_lane.nth(on_gpu.index(longest)).bounding_box()
    figure.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 5)
    expect(said).to_contain_text(longest[NAME])
    pattern = r"^[\d.]+ µs on GPU stream \d+, .*; launched [\d.]+ µs before, by cuda"
    assert re.search(pattern, longest[SAID])
    expect(said).to_contain_text(longest[SAID])
    expect(figure.locator("rect.partner")).to_have_count(1)


def check_arrow_keys(figure, bars, others, ticks):
    """The arrow keys change between the variants, on the same scale."""
    first, second = figure.get_by_role("radio").all()
    first.focus()
    figure.page.keyboard.press("ArrowRight")
    expect(second).to_be_checked()
    expect(figure.locator("rect")).to_have_count(len(others))
    assert [text for text in texts_of(figure) if " µs" in text] == [
        text for text in ticks if " µs" in text
    ]
    figure.page.keyboard.press("ArrowLeft")
    expect(figure.locator("rect")).to_have_count(len(bars))


def check_walking(figure, bars):
    """The keys walk from bar to bar, and down from a launch to what it launched; Enter zooms,
    Escape leaves.
    """
    keyboard = figure.page.keyboard
    for _ in range(4):  # past the buttons
        keyboard.press("Tab")
    expect(figure.locator("svg")).to_be_focused()
    launch = next(bar for bar in bars if bar[PARTNERS])
    for bar in (bars[0], launch, bars[launch[PARTNERS][0]]):
        keyboard.press("ArrowDown")
        expect(figure.locator("output")).to_contain_text(bar[SAID])
    middle, scale = middle_of_chosen(figure), scale_of(figure)
    keyboard.press("Enter")
    expect(figure.locator("rect")).not_to_have_count(len(bars))
    assert abs(middle_of_chosen(figure) - middle) < 2, "the chosen bar stays where it is"
    assert round(scale_of(figure) / scale, 2) == 4
    keyboard.press("Escape")
    keyboard.press("ArrowUp")
    keyboard.press("ArrowUp")
    for _ in range(4):
        keyboard.press("Enter")
    name = figure.locator("output b").inner_text()
    expect(figure.locator("text.inside", has_text=name).first).to_be_visible()
    keyboard.press("Escape")
    expect(figure.locator("rect")).to_have_count(len(bars))


def check_zoom(figure, ticks):
    """The buttons change the scale, and give it back."""
    presses = [("zoom in", False), ("zoom out", True), ("zoom in", False), ("whole step", True)]
    for name, same in presses:
        figure.get_by_role("button", name=name).click()
        assert (texts_of(figure) == ticks) == same


def middle_of_chosen(figure):
    """Where on the page the middle of the chosen bar is."""
    box = figure.locator("rect.chosen").bounding_box()
    return box["x"] + box["width"] / 2


def scale_of(figure):
    """Pixels per µs, by the axis."""
    first, second = (
        (float(figure.locator("line.grid").nth(n).get_attribute("x1")), float(text.split()[0]))
        for n, text in enumerate([text for text in texts_of(figure) if " µs" in text][:2])
    )
    return (second[0] - first[0]) / (second[1] - first[1])


def texts_of(figure):
    return figure.locator("svg text").all_text_contents()
