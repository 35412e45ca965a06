"""A lesson as a page of the site: the notebook as it is now, with the outputs of its recording.

The page also has the traces to download, the solutions folded below their exercises, and index
entries for the search.
"""

import inspect
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import nbformat
from nbformat.v4 import new_markdown_cell as markdown

from course.commands.renumber import renamed, stems
from course.exhibits import index
from course.machine import gpus_of
from course.paths import NOTEBOOKS, REFERENCE_GPU, ROOT, TRACES, lesson_name
from course.recordings.cells import checked, meaning
from course.recordings.recording import Recording, recordings
from course.recordings.sanitise import plain_markdown, without_scripts
from course.recordings.values import MIME
from course.touch import framed
from docs.contrast import in_shades, shaded
from docs.findable import GALLERY, description, topics
from docs.views import lay_views
from helpers import charts


def page(path: Path) -> nbformat.NotebookNode:
    """A notebook as its page, with its recording's outputs and their origin, if it has one."""
    notebook = nbformat.read(path, as_version=4)
    name = lesson_name(path)
    if recorded := recordings(name):
        recording, *others = recorded
        lay_outputs(notebook, recording)
        lay_views(notebook, recording)
        notebook.cells[0].source += "\n\n" + provenance(recording.about, gpus(notebook), others)
        link_traces(notebook, name, recording.about["traces"])
    if path.parent == NOTEBOOKS:
        fold_solutions(notebook, NOTEBOOKS / "solutions" / path.name)
        (promise,) = re.findall(r"\*\*After this lesson\*\*,? (.*)", notebook.cells[0].source)
        notebook.metadata |= description(f"After this lesson {promise}")
        notebook.cells[0].source = notebook.cells[0].source.replace(
            "\n\n", f"\n\n{topics(path)}\n\n", 1
        )
    if name == GALLERY and path.parent == NOTEBOOKS:
        index_on_top(notebook, recording)
    return notebook


def lay_outputs(notebook: nbformat.NotebookNode, recording: Recording) -> None:
    """Give each code cell the outputs recorded for this very source, and its charts a text."""
    outputs_of, heading = {cell.meaning: cell.outputs for cell in recording.cells}, ""
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            heading = (re.findall(r"^#+ (.*)", cell.source, re.MULTILINE) or [heading])[-1]
        elif meaning(cell.source) in outputs_of:
            cell.outputs = [
                harmless(output) for output in outputs_of[meaning(cell.source)] if shown(output)
            ]
            cell.metadata["mystnb"] = {"image": {"alt": alternative(cell.source, heading)}}


def shown(output: nbformat.NotebookNode) -> bool:
    """Whether an output is for readers: not recorded values, nothing of a live run or a server."""
    data = output.get("data", {})
    live = "".join(data.get("text/markdown", "")).startswith("**Live**")
    return (
        MIME not in data and not live and "drag the file" not in "".join(data.get("text/html", ""))
    )


def harmless(output: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """The output in one form, as in JupyterLab, without what could run in the page.

    A timeline gets today's script, and links to lessons get the numbers that they have today.
    """
    if "data" not in output:  # a stream or an error, which the site escapes
        return output
    data = {
        kind: "".join(text) for kind, text in output.data.items() if isinstance(text, list | str)
    }
    plain = data.get("text/plain", "")
    if "image/png" in data:
        output.data = {"image/png": in_shades(data["image/png"]), "text/plain": plain}
    elif "text/html" in data:
        html = without_scripts(data["text/html"])
        html = framed("timeline", shaded(html)) if "data-timeline" in html else html
        output.data = {"text/html": html, "text/plain": plain}
    elif markdown_text := plain_markdown(data.get("text/markdown", "")):
        output.data = {"text/markdown": renamed(markdown_text, stems())}
    else:
        output.data = {"text/plain": data.get("text/markdown", plain)}
    output.metadata = {}
    return output


def gpus(notebook: nbformat.NotebookNode) -> int:
    """The GPUs that a lesson asks for where it opens: 1, or what lesson(..., gpus=2) says."""
    return int(
        (re.findall(r"^lesson\(.*gpus=(\d+)", notebook.cells[1].source, re.MULTILINE) or [1])[0]
    )


def provenance(about: dict[str, Any], gpus: int = 1, others: Sequence[Recording] = ()) -> str:
    """Where a recording comes from, in words, and which others there are of the lesson."""
    too = "".join(
        f" It was [recorded](../traces/README.md) on {gpus_of(one.about, gpus)} too."
        for one in others
    )
    return (
        f"> **Recorded**: the cells of this page ran on {gpus_of(about, gpus)} "
        f"(driver {about['driver']}, CUDA {about['cuda']}, torch {about['torch']}, "
        f"Python {about['python']}) on {about['date']}, in {about['seconds']} seconds, "
        f"with at most {about['peak_gpu_mib']} MiB of GPU memory. Nothing runs here. "
        f"In JupyterLab the lesson runs, with or without a GPU.{too}"
    )


def alternative(source: str, heading: str) -> str:
    """The text for the chart that a cell draws: its lanes or axes, and where it is."""
    where = f'Chart in the section "{heading}"'
    call = re.search(rf"\b({'|'.join(CHARTS)})\((.|\n(?=[ )]))*\)", source)
    if call:
        drawn_by = re.sub(r"(?<=[(]) | (?=[)])", "", " ".join(call[0].split()))
        return f"{where}: {CHARTS[call[1]]} Drawn by {drawn_by}"
    axes = re.findall(r'(?:xlabel|ylabel)=f?"([^"]*)"', source)
    return f"{where}, with the axes: {'; '.join(axes)}" if axes else where


def _first_sentence(function):
    text = inspect.getdoc(function).splitlines()[0].removeprefix("Draw ")
    return text[0].upper() + text[1:]


CHARTS = {
    name: _first_sentence(function)
    for name, function in inspect.getmembers(charts, inspect.isfunction)
    if function.__module__ == charts.__name__ and not name.startswith("_")
}


def link_traces(notebook: nbformat.NotebookNode, name: str, files: dict[str, str]) -> None:
    """Link each trace below the cell that records or reads it first; course.js adds a button."""
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    of_cell = {}
    for trace, file in files.items():
        cell = min(code, key=lambda cell: distance(trace, cell.source))
        path = TRACES / REFERENCE_GPU / name / file
        link = (
            f"[{trace}.json.gz](../{path.relative_to(ROOT)}) ({path.stat().st_size / 1e3:.0f} kB)"
        )
        of_cell.setdefault(cell.id, []).append(link)
    for id, links in of_cell.items():
        where = next(number for number, cell in enumerate(notebook.cells) if cell.id == id) + 1
        said = "Recorded traces" if len(links) > 1 else "Recorded trace"
        notebook.cells.insert(where, markdown(f"{said}, to download: {', '.join(links)}"))


def distance(trace: str, source: str) -> int:
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
        solutions |= dict.fromkeys(
            re.findall(r"^def (\w+)\(", cell.source, re.MULTILINE), cell.source
        )
    for number, cell in reversed(list(enumerate(notebook.cells))):
        asked = checked(cell.source) if cell.cell_type == "code" else []
        source = solutions.get(asked[-1][1]) if asked else None
        if source:
            after = notebook.cells[number + 1]
            hints = re.match(r"(<details>.*</details>\s*)*", after.source)
            told = hints[0] if hints and after.cell_type == "markdown" else ""
            after.source = after.source[len(told) :]
            summary = "<details class='solution'><summary>Solution</summary>"
            folded = f"{summary}\n\n```python\n{source}\n```\n\n</details>"
            notebook.cells.insert(number + 1, markdown(f"{told}\n\n{folded}"))


def index_on_top(notebook: nbformat.NotebookNode, recording: Recording) -> None:
    """Lay the gallery's index, of this recording, under the cell on top that shows it."""
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    (on_top,) = [cell for cell in code if cell.source.endswith("recorded_index()")]
    shown = index(recording.value("exhibits"))
    on_top.outputs = [nbformat.v4.new_output("display_data", {"text/markdown": shown.data})]
    on_top.metadata["tags"] = ["remove-input"]
