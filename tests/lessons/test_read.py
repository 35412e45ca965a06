"""read/: the lessons with what their cells show, for whoever opens the repository on a hosting
site.
"""

import re
from importlib.metadata import version

import pytest

from tests.support.notebooks import RECORDED, parametrize_paths
from tests.support.project import PINS

pytest.importorskip("PIL")

from docs.read import READ, fenced, page

AS_PINNED = all(version(one) == PINS[one] for one in ("pandas", "matplotlib", "ipython"))
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
    assert {path.name for path in READ.glob("charts/*")} == named and named


CHART = re.compile(r"^!\[.{20,}\]\(charts/(\w+\.(?:png|svg))\)$", re.MULTILINE)


@pytest.mark.parametrize("path", sorted(READ.glob("*.md")), ids=lambda path: path.stem)
def test_every_link_of_a_page_leads_somewhere(path):
    text = re.sub(r"^(`{3,}).*?^\1", "", path.read_text(), flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"`[^`]*`", "", text)
    for link in re.findall(r"\]\(([^)\s#]+)", text):
        assert "://" in link or (path.parent / link).exists(), link
    for file, name in re.findall(r"""(?:\]\(|href=")([./\w]+\.md)?#([^)"\s]+)""", path.read_text()):
        named = (path.parent / (file or path)).read_text()
        headings = re.findall(r"^#+ (.*)$", named, re.MULTILINE)
        assert name in {re.sub(r"[^\w -]", "", one).lower().replace(" ", "-") for one in headings}


def test_a_fence_in_a_text_gets_a_longer_one_around_it():
    assert fenced("```", "text") == "````text\n```\n````"
