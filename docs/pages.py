"""Write the sources of the course's site:  python -m docs.pages

A lesson's page is made in docs/lesson_page.py.
The pages are written to docs/_build/source, which mirrors the project, so links between files
work on the site too.
"""

import re
import shutil
from pathlib import Path

import nbformat

from course.lessons import PUZZLES, is_optional, lesson_file, title
from course.paths import NOTEBOOKS, ROOT, lesson_name
from course.recordings.recording import find_recording
from course.touch.capture import animate_capture
from docs.address import repository, where_to_ask
from docs.lesson_page import page
from docs.minutes import stated_minutes
from docs.played import played, recorded_lessons
from docs.readme import lesson_number
from docs.search import GALLERY
from helpers.trace import read_trace

SOURCE = ROOT / "docs/_build/source"
TEMPLATES = ROOT / "docs/templates"
RESULTS = sorted(path.relative_to(ROOT) for path in ROOT.glob("benchmarks/results/*.md"))
# cheat sheet, found on the way, glossary, originals; then what the rooms say of themselves
REFERENCES = [
    path.relative_to(ROOT)
    for room in ("docs", "capturable", "cpu_graph", "examples", "trace_report")
    for path in sorted(ROOT.glob(f"{room}/*.md"))
]
ABOUT = [Path("CONTRIBUTING.md"), Path("CHANGELOG.md"), Path("traces/README.md")]
TEXTS = [*ABOUT, *REFERENCES, *RESULTS]
ROOMS = {  # what has a reference
    "helpers": "what lessons teach with",
    "capturable": "preflight and explain, for your own code",
    "cpu_graph": "the stand-in for CUDA graphs on a CPU",
    "trace_report": "a report on profiler traces",
}
BADGES = re.compile(r"<!-- badges.*?<!-- end of badges -->", re.DOTALL)  # pictures from elsewhere
READ = re.compile(r"\]\(((?:\.\./)?)read/(\d+_\w+)\.md")  # a lesson's page on a hosting site
LINK = re.compile(r"\]\(([^)#\s]+)[^)\s]*\)")  # in Markdown: Sphinx makes a download of it


def write_pages(folder: Path = SOURCE) -> None:
    """Write all pages, and the files that they link to, into the folder, which is emptied first."""
    shutil.rmtree(folder, ignore_errors=True)
    for text in TEXTS:
        _write(folder / text, READ.sub(r"](\1notebooks/\2.ipynb", (ROOT / text).read_text()))
    _write(folder / "notebooks/solutions/index.md", read_template("solutions"))
    _write(folder / "api.md", api_page())
    lessons = played(recorded_lessons())
    for path in [*lessons, *(path.parent / "solutions" / path.name for path in lessons)]:
        _write(folder / path.relative_to(ROOT), nbformat.writes(page(path, lessons.get(path))))
    for path in puzzle_notebooks():
        _write(folder / path.relative_to(ROOT), path.read_text(encoding="utf-8"))
    readme = READ.sub(r"](\1notebooks/\2.ipynb", (ROOT / "README.md").read_text())
    _write(folder / "README.md", BADGES.sub("", readme))
    _write(folder / "index.md", front_page(readme) + site_contents())
    ask = where_to_ask(repository())
    explain = read_template("explain").format(gallery=lesson_file(GALLERY).name, ask=ask)
    _write(folder / "explain.md", explain)
    _write(folder / "404.md", read_template("404"))
    for path in [*folder.rglob("*.md"), *folder.rglob("*.ipynb")]:
        copy_linked_files(path, folder)


def read_template(name: str) -> str:
    """The Markdown of a page that no other file holds."""
    return (TEMPLATES / f"{name}.md").read_text(encoding="utf-8")


def front_page(readme: str) -> str:
    """The front page: what the README says first, the picture, and three ways to go on."""
    title, about = readme.split("\n\n")[:2]
    (headline,) = re.findall(r"<!-- headline.*?-->\n(.*?)\n", readme)
    (offer,) = re.findall(r"<!-- offer.*?-->\n(.*?)\n<!--", readme, re.DOTALL)
    (paths,) = re.findall(r"^\| you \|.*?(?=\n\n)", readme, re.MULTILINE | re.DOTALL)
    start = lesson_file("start_here").name
    words = {"title": title, "about": about, "headline": headline, "offer": offer}
    moving = f"``````{{raw}} html\n{animation_html()}\n``````"
    return read_template("front_page").format(picture=moving, start=start, paths=paths, **words)


def animation_html() -> str:
    """The picture of eager, capture and replay that moves, as its lesson shows it."""
    recording = find_recording("capture_training_step")
    traces = {name: read_trace(recording.trace(name)) for name in ("eager", "whole_step")}
    return str(animate_capture(traces).data)


def puzzle_notebooks() -> list[Path]:
    """The notebook of the puzzles, and that of their solutions."""
    return [lesson_file(PUZZLES, folder) for folder in (NOTEBOOKS, NOTEBOOKS / "solutions")]


def site_contents() -> str:
    """The site's navigation, appended to the front page."""
    entries = [f"{side_bar_entry(path)} <notebooks/{path.stem}>" for path in recorded_lessons()]
    lessons = "\n".join(entries)
    puzzle, _ = puzzle_notebooks()
    first = f"{title(puzzle)} <notebooks/{puzzle.stem}>"
    results = "\n".join(f"Benchmark, {path.stem} <{path}>" for path in RESULTS)
    references = "\n".join(str(path.with_suffix("")) for path in REFERENCES)
    captions = {
        "Lessons": f"{first}\n{lessons}\nnotebooks/solutions/index",
        "Reference": f"Run the course <README>\n{references}\napi\n"
        f"traces/README\n{results}\nCONTRIBUTING\nCHANGELOG",
    }
    return "".join(
        f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{listed}\n```\n"
        for caption, listed in captions.items()
    )


def side_bar_entry(path: Path) -> str:
    """A lesson's number, title and, but for the gallery, minutes: 0 · Start here · 16 min."""
    facts = [str(lesson_number(path)), title(path)]
    if lesson_name(path) != GALLERY:
        facts.append(f"{stated_minutes(path)}\N{NO-BREAK SPACE}min")
    return " · ".join(facts + ["optional"] * is_optional(path))


def modules() -> list[str]:
    """The names of the modules of each room, such as helpers.trace."""
    files = [file for room in ROOMS for file in sorted((ROOT / room).glob("[a-z]*.py"))]
    return [f"{file.parent.name}.{file.stem}" for file in files]


def api_page() -> str:
    """The reference of every module of the rooms, from its docstrings."""
    rooms = "".join(f"- `{room}`: {what}\n" for room, what in ROOMS.items())
    sections = "\n".join(
        f"## {name}\n\n```{{eval-rst}}\n.. automodule:: {name}\n   :members:\n```\n"
        for name in modules()
    )
    said = "The small modules that lessons show, as their docstrings describe them."
    return f"# Modules\n\n{said}\n\n{rooms}\n{sections}"


def copy_linked_files(page: Path, folder: Path) -> None:
    """Copy what a page links to, and is no page itself, to where the link finds it."""
    for target in LINK.findall(page.read_text()):
        path = (ROOT / page.parent.relative_to(folder) / target).resolve()
        if "://" not in target and path.is_file() and path.is_relative_to(ROOT):
            copy = folder / path.relative_to(ROOT)
            if not copy.exists():
                _write(copy, path.read_bytes())


def slug(heading: str) -> str:
    """A heading's anchor as JupyterLab makes it."""
    return heading.strip().replace(" ", "-")


def _write(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())


if __name__ == "__main__":
    write_pages()
