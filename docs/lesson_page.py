"""A lesson as a page of the site: the notebook with what its cells show.

The page also has the traces to download, the solutions folded below their exercises, and index
entries for the search.
"""

import re
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

import nbformat
from nbformat.v4 import new_markdown_cell as markdown

from course.machine import gpus_in_words
from course.paths import NOTEBOOKS, REFERENCE_GPU, ROOT, TRACES, lesson_name
from course.recordings.cells import checks_in
from course.recordings.recording import Recording, recordings_of
from docs.search import description, topics


def page(path: Path, played: nbformat.NotebookNode | None = None) -> nbformat.NotebookNode:
    """A notebook as its page. played: the lesson with its outputs, where it has a recording."""
    notebook = played or nbformat.read(path, as_version=4)
    first = notebook.cells[0]
    name = lesson_name(path)
    if played:
        recording, *others = recordings_of(name)
        prepare_outputs(notebook)
        first.source += f"\n\n{provenance(recording.about, gpu_count(notebook), others)}"
        add_trace_links(notebook, name, recording.about["traces"])
    if path.parent == NOTEBOOKS:
        fold_solutions(notebook, NOTEBOOKS / "solutions" / path.name)
        (promise,) = re.findall(r"\*\*After this lesson\*\*,? (.*)", first.source)
        notebook.metadata |= description(f"After this lesson {promise}")
        first.source = first.source.replace("\n\n", f"\n\n{topics(path)}\n\n", 1)
    return notebook


def prepare_outputs(notebook: nbformat.NotebookNode) -> None:
    """Keep what readers of a page see, and give charts their text."""
    for cell in notebook.cells:
        if cell.cell_type != "code":
            continue
        cell.outputs = [output for output in cell.outputs if is_for_readers(output)]
        for output in cell.outputs:
            data = output.get("data", {})
            if "image/png" in data:
                cell.metadata["mystnb"] = {"image": {"alt": data["text/plain"]}}
            elif "text/html" in data and "class='touch'" not in data["text/html"]:
                data["text/html"] = without_styles(data["text/html"])
        if is_folded(cell):
            cell.metadata["tags"] = ["hide-input"]
        if cell.source.endswith("recorded_index()"):
            cell.metadata["tags"] = ["remove-input"]


def is_folded(cell: nbformat.NotebookNode) -> bool:
    """Whether JupyterLab folds the code of a cell, because it only draws, reads or asserts."""
    return bool(cell.metadata.get("jupyter", {}).get("source_hidden"))


def is_for_readers(output: nbformat.NotebookNode) -> bool:
    """Whether an output is for readers of a page: it is not if it needs Jupyter's own server."""
    return "drag the file" not in output.get("data", {}).get("text/html", "")


def without_styles(html: str) -> str:
    """The HTML of an output without colours of its own, tables with a line for each row."""
    html = re.sub(r"<style.*?</style>", "", html, flags=re.DOTALL)
    html = re.sub(r" style=([\"']).*?\1", "", html)
    if "<table" not in html:
        return html
    return re.sub(r"\s*\n\s*(?!<tr|</?t(head|body|able)|</div)", "", html.strip())


def gpu_count(notebook: nbformat.NotebookNode) -> int:
    """The GPUs that a lesson asks for where it opens: 1, or what lesson(..., gpus=2) says."""
    asked = re.search(r"^lesson\(.*gpus=(\d+)", notebook.cells[1].source, re.MULTILINE)
    return int(asked[1]) if asked else 1


def provenance(about: dict[str, Any], gpus: int = 1, others: Sequence[Recording] = ()) -> str:
    """Where a recording comes from, in words, and which others there are of the lesson."""
    about = escape_about(about)
    too = "".join(
        " It was [recorded](../traces/README.md) on "
        f"{gpus_in_words(escape_about(one.about), gpus)} too."
        for one in others
    )
    return (
        f"> **Recorded**: the `%%gpu` cells of this page ran on {gpus_in_words(about, gpus)} "
        f"(driver {about['driver']}, CUDA {about['cuda']}, torch {about['torch']}, "
        f"Python {about['python']}) on {about['date']}, in {about['seconds']} seconds, "
        f"with at most {about['peak_gpu_mib']} MiB of GPU memory, all others on what was recorded. "
        f"In JupyterLab the lesson runs, with or without a GPU.{too}"
    )


def escape_about(about: dict[str, Any]) -> dict[str, Any]:
    """What a recording says of itself, with its texts as Markdown that shows them as they are: it
    may be a stranger's.
    """
    return {
        key: re.sub(r"([\\`*_\[\]])", r"\\\1", escape(value)) if isinstance(value, str) else value
        for key, value in about.items()
    }


def add_trace_links(notebook: nbformat.NotebookNode, name: str, files: dict[str, str]) -> None:
    """Link each trace below the cell that records or reads it first; course.js adds a button."""
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    of_cell = {}
    for trace, file in files.items():
        cell = min(code, key=lambda cell: trace_match_distance(trace, cell.source))
        path = TRACES / REFERENCE_GPU / name / file
        size = f"{path.stat().st_size / 1e3:.0f} kB"
        link = f"[{trace}.json.gz](../{path.relative_to(ROOT)}) ({size})"
        of_cell.setdefault(cell.id, []).append(link)
    for id, links in of_cell.items():
        where = next(number for number, cell in enumerate(notebook.cells) if cell.id == id) + 1
        said = "Recorded traces" if len(links) > 1 else "Recorded trace"
        notebook.cells.insert(where, markdown(f"{said}, to download: {', '.join(links)}"))


def trace_match_distance(trace: str, source: str) -> int:
    """How surely a cell is about a trace: names it (0), computes its name (1, 2), has none (3)."""
    named = re.findall(r"""trace_file\(f?(["'])(.*?)\1\)""", source)
    shapes = [re.sub(r"\\{.*?\\}", "(.+)", re.escape(name)) for _, name in named]
    if found := [shape for shape in shapes if re.fullmatch(shape, trace)]:
        return int(all("(.+)" in shape for shape in found))
    return 2 if re.search(r"trace_file\([a-z]", source) else 3


def fold_solutions(notebook: nbformat.NotebookNode, path: Path) -> None:
    """Below each exercise's check and hints, fold one way to solve it."""
    solutions = {}
    for cell in nbformat.read(path, as_version=4).cells if path.exists() else []:
        names = re.findall(r"^def (\w+)\(", cell.source, re.MULTILINE)
        solutions |= dict.fromkeys(names, cell.source)
    for number, cell in reversed(list(enumerate(notebook.cells))):
        asked = checks_in(cell.source) if cell.cell_type == "code" else []
        source = solutions.get(asked[-1][1]) if asked else None
        if source:
            after = notebook.cells[number + 1]
            hints = re.match(r"(<details>.*</details>\s*)*", after.source)
            told = hints[0] if hints and after.cell_type == "markdown" else ""
            after.source = after.source[len(told) :]
            summary = "<details class='solution'><summary>Solution</summary>"
            folded = f"{summary}\n\n```python\n{source}\n```\n\n</details>"
            notebook.cells.insert(number + 1, markdown(f"{told}\n\n{folded}"))
