"""The pages beside the lessons: glossary, originals, cheat sheet; and the words that all of them use."""

import re

import nbformat
import pytest

from course.lessons import lesson_file
from course.paths import NOTEBOOKS, ROOT

DOCS = ROOT / "docs"
ROOMS = ("benchmarks", "capturable", "course", "cpu_graph", "docs", "helpers", ".github")
TEXTS = [
    *(path for room in ROOMS for path in sorted((ROOT / room).glob("*.*")) if path.suffix in (".md", ".py", ".sh")),
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "Makefile", "Dockerfile", "traces/README.md")),
    *sorted(NOTEBOOKS.rglob("*.ipynb")),
]
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
    assert re.search("leimao.*originals.md|originals.md.*leimao", prose(lesson_file("start_here")), re.DOTALL)


def prose(path):
    return "\n\n".join(cell.source for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "markdown")


@pytest.mark.parametrize("path", sorted(NOTEBOOKS.glob("*.ipynb")), ids=lambda path: path.stem)
def test_the_originals_tables_stand_on_their_own_page(path):
    assert not re.search(r"^\|.*original", prose(path), re.MULTILINE)


@pytest.mark.parametrize("name", ["cheat_sheet", "glossary", "originals"])
def test_the_readme_leads_to_every_page(name):
    assert f"(docs/{name}.md)" in (ROOT / "README.md").read_text()


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_word_is_fix(path):
    """It is what readers search."""
    assert re.findall(r"(?i)(?<![a-z])mend(?:s|ed|ing)?(?![a-z])", path.read_text()) == []
