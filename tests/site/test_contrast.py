"""Text and fills are told apart from their ground, in the light and in the dark theme (WCAG 2)."""

import base64
import io
import re

import pytest
from matplotlib.colors import to_hex, to_rgb
from PIL import Image

from course.lessons import lesson_file
from course.paths import ROOT
from docs import readme
from docs.played import played
from helpers.charts import COLOURS
from tests.support import contrast
from tests.support.lab_page import expect
from tests.support.notebooks import RECORDED

FILTER = f"filter: invert({contrast.INVERTED}) hue-rotate(180deg);"
TEXT, FILL = 4.5, 3
BESIDE = {  # fills that are told apart from another one, not from white
    "number dropped": "number kept"
}
FAINT = {  # and what only accompanies something that is told apart
    "#bfddf1": "the quartiles round a line",
    "#efd6e4": "the quartiles round a line",
    "#d18f29": "thin lines that lie over each other",
    "#ddcc77": "the numbers dropped, beside those kept",
    "#fdfdfd": "the ground of a sampled picture",
    "#fefefe": "the ground of a sampled picture",
}


def test_contrast_is_counted_as_wcag_counts_it():
    assert contrast.ratio((0, 0, 0), (1, 1, 1)) == pytest.approx(21)
    assert contrast.ratio(to_rgb("#767676"), to_rgb("white")) == pytest.approx(4.54, abs=0.01)
    assert to_hex(contrast.in_dark(to_rgb("white"))) == "#121212", "the ground of the dark theme"
    assert to_hex(contrast.in_dark(to_rgb("black"))) == "#ededed"


@pytest.mark.parametrize(
    "path",
    [
        "docs/static/course.css",
        "trace_report/touch.css",
        "trace_report/page.css",
        "jupyter/custom/custom.css",
    ],
)
def test_every_style_sheet_turns_charts_over_as_computed(path):
    text = (ROOT / path).read_text()
    assert set(re.findall(r"filter: invert.*", text)) == {FILTER}


@pytest.mark.parametrize("lane", sorted({*COLOURS} - {*BESIDE}))
def test_a_lanes_colour_is_told_apart_from_its_ground(lane):
    assert min(contrast.on_both(COLOURS[lane])) >= FILL


@pytest.mark.parametrize(("one", "other"), BESIDE.items())
def test_what_tiles_a_picture_is_told_apart_from_its_neighbour(one, other):
    pair = to_rgb(COLOURS[one]), to_rgb(COLOURS[other])
    assert contrast.ratio(*pair) >= FILL
    assert contrast.ratio(*map(contrast.in_dark, pair)) >= FILL


@pytest.mark.parametrize("lane", ["host time", "waiting"])
def test_names_on_a_fill_are_read(lane):
    fill, white = to_rgb(COLOURS[lane]), to_rgb("white")
    assert contrast.ratio(fill, white) >= TEXT
    assert contrast.ratio(contrast.in_dark(fill), contrast.in_dark(white)) >= TEXT


@pytest.mark.parametrize("name", ["static_input", "capture_and_replay", "while_node", "choose_api"])
def test_drawings_write_on_white_and_draw_in_colours_that_are_told_apart(name):
    text = (ROOT / f"docs/static/{name}.svg").read_text()
    decoration = {"#CCCCCC", "#DDDDDD", "#FFFFFF"}  # rules between rows
    for colour in set(re.findall(r"#[0-9A-Fa-f]{6}", text)) - decoration:
        assert min(contrast.on_both(colour)) >= FILL, colour
    for colour in re.findall(
        r"^ +(?:text|\.head|\.lane|\.note)[^{]*{[^}]*fill: (#\w+)", text, re.M
    ):
        assert min(contrast.on_both(colour)) >= TEXT, colour


def charts():
    """Every chart of the lessons: (lesson, PNG)."""
    for path, notebook in played(RECORDED).items():
        for cell in notebook.cells:
            for output in cell.get("outputs", []):
                if png := output.get("data", {}).get("image/png"):
                    yield path.stem, png


def test_the_fills_of_every_chart_are_told_apart():
    found = list(charts())
    assert len(found) > 15
    faint = {
        f"{name}: {colour}"
        for name, png in found
        for colour in contrast.fills(png)
        if min(contrast.on_both(colour)) < FILL and colour not in FAINT
    }
    assert faint == set()


@pytest.mark.parametrize("path", [readme.PICTURE, readme.PREVIEW])
def test_the_readmes_pictures_are_told_apart(path):
    png = base64.b64encode(path.read_bytes()).decode()
    assert (
        contrast.fills(png)
        and min(min(contrast.on_both(one)) for one in contrast.fills(png)) >= FILL
    )


FAINT_TEXT = """(least) => {
  const part = (c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
  const light = ([r, g, b]) => 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
  const ratio = (a, b) => { const [x, y] = [light(a), light(b)].sort((p, q) => p - q); return (y + 0.05) / (x + 0.05); };
  const read = (text) => { const n = text.match(/[\\d.]+/g).map(Number); return [n.slice(0, 3).map((c) => c / 255), n[3] ?? 1]; };
  const over = ([top, share], below) => top.map((c, i) => share * c + (1 - share) * below[i]);
  const ground = (node) => {
    const below = node.parentElement ? ground(node.parentElement) : [1, 1, 1];
    return over(read(getComputedStyle(node).backgroundColor), below);
  };
  const faint = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let text = walker.nextNode(); text; text = walker.nextNode()) {
    const node = text.parentElement;
    if (!text.data.trim() || node.closest("svg, script, style, noscript, .touch, .headerlink, :disabled")) continue;
    if (!node.checkVisibility({ opacityProperty: true, visibilityProperty: true })) continue;
    const style = getComputedStyle(node), below = ground(node), size = parseFloat(style.fontSize);
    const large = size >= 24 || (size >= 18.66 && style.fontWeight >= 700);
    const found = ratio(over(read(style.color), below), below);
    if (found < (large ? 3 : least)) faint.push(`${found.toFixed(2)} ${style.color} ${node.tagName}.${node.className}: ${text.data.trim().slice(0, 40)}`);
  }
  return [...new Set(faint)];
}"""  # noqa: E501


@pytest.mark.browser
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_all_text_of_the_pages_is_read(page, theme):
    page.emulate_media(color_scheme=theme)
    lessons = ["start_here", "capture_and_replay", "capture_training_step", "failure_gallery"]
    names = [f"notebooks/{lesson_file(name).stem}" for name in lessons]
    faint = {}
    for name in ["index", "explain", "README", "404", "api", "docs/cheat_sheet", *names]:
        page.goto(f"{page.address}/{name}.html")
        expect(page.locator("html")).to_have_attribute("data-theme", theme)
        if name == "explain":
            page.get_by_label("Paste an error message").fill("capturing stream has unjoined work")
        page.add_style_tag(content="* { transition: none !important }")
        if found := page.evaluate(FAINT_TEXT, TEXT):
            faint[name] = found
    assert faint == {}


@pytest.mark.browser
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_charts_lie_on_the_pages_own_ground(page, theme):
    """Their corners have the page's colour: no white box glares in the dark."""
    page.emulate_media(color_scheme=theme)
    page.goto(f"{page.address}/notebooks/{lesson_file('profile_eager_training').stem}.html")
    expect(page.locator("html")).to_have_attribute("data-theme", theme)
    wanted = (255, 255, 255) if theme == "light" else (18, 18, 18)
    for picture in (page.locator(".cell_output img").first, page.locator(".touch figure").first):
        shot = Image.open(io.BytesIO(picture.screenshot()))
        assert shot.convert("RGB").getpixel((2, 2)) == pytest.approx(wanted, abs=2)
