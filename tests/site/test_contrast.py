"""Text is told apart from its ground, in the light and in the dark theme (WCAG 2)."""

import io

import pytest
from PIL import Image

from course.lessons import lesson_file
from tests.support.lab_page import expect

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
        if found := page.evaluate(FAINT_TEXT, 4.5):
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
