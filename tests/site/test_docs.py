"""The pages beside the lessons: glossary, originals, cheat sheet."""

import re

import pytest

from course.lessons import lesson_file
from course.paths import ROOT
from tests.support.notebooks import LESSONS, prose

DOCS = ROOT / "docs"
TERMS = dict(re.findall(r"^## (.*)\n\n(.*)", (DOCS / "glossary.md").read_text(), re.MULTILINE))


def test_the_glossary_is_in_order_and_short():
    assert list(TERMS) == sorted(TERMS) and len(TERMS) > 40
    for term, text in TERMS.items():
        meaning, _, lesson = text.partition(" Lesson: ")
        assert len(re.findall(r"[.:!?](?= |$)", meaning)) <= 3 and len(meaning) < 250, term
        assert re.fullmatch(r"\[.*\]\(\.\./notebooks/\w+\.ipynb\)\.", lesson), (
            f"{term} names the lesson that teaches it"
        )
        assert term == term.lower(), "anchors are the same on GitHub, in JupyterLab and on the site"


def test_the_originals_are_named_and_linked():
    text = (DOCS / "originals.md").read_text()
    for address in (
        "github.com/leimao/PyTorch-CUDA-Graph-Capture-Examples",
        "leimao.github.io/blog/PyTorch-CUDA-Graph-Capture",
        "docs.nvidia.com/dl-cuda-graph",
        "perf-torch-cuda-graphs",
    ):
        assert address in text
    assert re.search(
        "leimao.*originals.md|originals.md.*leimao", prose(lesson_file("start_here")), re.DOTALL
    )


def test_the_originals_tables_stand_on_their_own_page():
    assert [
        path for path in LESSONS if re.search(r"^\|.*original", prose(path), re.MULTILINE)
    ] == []


@pytest.mark.parametrize("name", ["cheat_sheet", "glossary", "originals"])
def test_the_readme_leads_to_every_page(name):
    assert f"(docs/{name}.md)" in (ROOT / "README.md").read_text()
