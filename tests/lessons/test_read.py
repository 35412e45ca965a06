"""read/: the lessons with what their cells show, for whoever opens the repository on a hosting
site.
"""

import re
from importlib.metadata import version

import pytest

from course.paths import ROOT
from cpu_graph.svg import drawing, image, text
from tests.support.notebooks import RECORDED, parametrize_paths

pytest.importorskip("PIL")

from docs.read import READ, as_markdown, link_to_pages, page, picture
from exercises.guesses import NO_GUESS

PINNED = dict(re.findall(r"^(\S+)==(\S+)", (ROOT / "constraints.txt").read_text(), re.MULTILINE))
AS_PINNED = all(version(one) == PINNED[one] for one in ("pandas", "matplotlib", "ipython"))
written = pytest.mark.skipif(not AS_PINNED, reason="was written with the versions that are pinned")


@written
@parametrize_paths(RECORDED)
def test_a_page_says_what_the_lesson_shows(path, played_lessons):
    """Charts are compared by their texts: other fonts give other pixels."""
    text, charts = page(played_lessons[path], path)
    assert (READ / f"{path.stem}.md").read_text(encoding="utf-8") == text, "run `make read`"
    assert all((READ / "charts" / name).stat().st_size > 1000 for name in charts)


def test_nothing_else_lies_in_read():
    assert {path.stem for path in READ.glob("*.md")} == {path.stem for path in RECORDED}
    named = {name for path in READ.glob("*.md") for name in re.findall(CHART, path.read_text())}
    assert {path.name for path in READ.glob("charts/*")} == named and len(named) > 10


CHART = re.compile(r"^!\[.{20,}\]\(charts/(\w+\.(?:png|svg))\)$", re.MULTILINE)


@pytest.mark.parametrize("path", sorted(READ.glob("*.md")), ids=lambda path: path.stem)
def test_every_link_of_a_page_leads_somewhere(path):
    text = re.sub(r"^(`{3,}).*?^\1", "", path.read_text(), flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"`[^`]*`", "", text)
    for link in re.findall(r"\]\(([^)\s#]+)", text):
        assert "://" in link or (path.parent / link).exists(), link
    for file, name in re.findall(r"""(?:\]\(|href=")([./\w]+\.md)?#([^)"\s]+)""", path.read_text()):
        headings = re.findall(
            r"^#+ (.*)$", (path.parent / (file or path)).read_text(), re.MULTILINE
        )
        assert name in {re.sub(r"[^\w -]", "", one).lower().replace(" ", "-") for one in headings}


def test_links_to_lessons_lead_to_their_pages():
    assert link_to_pages(
        "[a](02_b.ipynb#A-c,-1), [d](solutions/02_b.ipynb), [e](../docs/f.md#g)"
    ) == ("[a](02_b.md#a-c-1), [d](../notebooks/solutions/02_b.ipynb), [e](../docs/f.md#g)")


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ({"text/plain": "'41'"}, "```text\n'41'\n```"),
        ({"text/plain": f"{NO_GUESS}measured 3"}, "```text\nmeasured 3\n```"),
        ({"text/plain": "```"}, "````text\n```\n````"),
        ({"text/plain": "<IPython.core.display.HTML object>", "text/html": "<b>"}, ""),
        ({"text/plain": "x", "text/html": '<div class="highlight">'}, "```python\nx\n```"),
        ({"text/plain": "<...>", "text/markdown": "[a](02_b.ipynb)"}, "[a](02_b.md)"),
    ],
)
def test_an_output_as_markdown(data, text):
    import nbformat

    assert as_markdown(nbformat.v4.new_output("display_data", data)) == text


def test_a_picture_that_moves_is_shown_as_it_stands_still():
    import nbformat

    html = image(drawing(9, 9, "", text(1, 1, "5 µs")), 'It says "5 µs".')
    output = nbformat.v4.new_output("display_data", {"text/html": f"<figure>{html}</figure>"})
    said, kind, content = picture(output)
    assert (said, kind) == ('It says "5 µs".', "svg")
    assert content.startswith(b"<svg xmlns=") and "5 µs".encode() in content
