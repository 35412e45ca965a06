"""Write the sources of the course's site:  python -m docs.pages

A lesson's page is the notebook as it is now, with the outputs of its recording laid on its code cells.
The pages lie in docs/_build/source, which mirrors the project: links between files hold on the site as elsewhere.
"""

import inspect
import re
import shutil
from pathlib import Path

import nbformat

from course.notebooks import NOTEBOOKS, REFERENCE_GPU, ROOT, TRACES, lesson_name, normalise
from course.recording import recorded_lesson
from course.values import MIME
from helpers import charts

SOURCE = ROOT / "docs/_build/source"
RESULTS = sorted(path.relative_to(ROOT) for path in ROOT.glob("benchmarks/results/*.md"))
BESIDE = sorted(path.relative_to(ROOT) for path in ROOT.glob("docs/*.md"))  # cheat sheet, glossary, originals
BESIDE += [Path("capturable/README.md"), Path("cpu_graph/README.md")]
TEXTS = ["CONTRIBUTING.md", "traces/README.md", *BESIDE, *RESULTS]
ROOMS = {  # what has a reference
    "helpers": "what lessons teach with",
    "capturable": "preflight and explain, for your own code",
    "cpu_graph": "the stand-in for CUDA graphs on a CPU",
}
LINK = re.compile(r"\]\(([^)#\s]+)[^)\s]*\)")  # in Markdown: Sphinx makes a download of it


def write_pages(folder=SOURCE):
    """Write every page, and every file of the project that a page links to, into the folder; what was in it goes."""
    shutil.rmtree(folder, ignore_errors=True)
    for text in TEXTS:
        _write(folder / text, (ROOT / text).read_text())
    _write(folder / "index.md", (ROOT / "README.md").read_text() + contents())
    _write(folder / "notebooks/solutions/index.md", SOLUTIONS)
    _write(folder / "api.md", api())
    for path in [*NOTEBOOKS.glob("*.ipynb"), *NOTEBOOKS.glob("solutions/*.ipynb")]:
        _write(folder / path.relative_to(ROOT), nbformat.writes(page(path)))
    for path in [*folder.rglob("*.md"), *folder.rglob("*.ipynb")]:
        copy_linked_files(path, folder)


def page(path):
    """A notebook as its page: with its recording's outputs and a sentence on where they come from, if it has one."""
    notebook = nbformat.read(path, as_version=4)
    name = lesson_name(path)
    if (TRACES / REFERENCE_GPU / f"{name}.ipynb").exists():
        recording = recorded_lesson(name)
        lay_outputs(notebook, recording)
        notebook.cells[0].source += "\n\n" + provenance(recording.about)
    return notebook


def lay_outputs(notebook, recording):
    """Give each code cell the outputs that this very cell gave when recorded, and its charts a text."""
    outputs_of, heading = {cell.source: cell.outputs for cell in recording.cells}, ""
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            heading = (re.findall(r"^#+ (.*)", cell.source, re.MULTILINE) or [heading])[-1]
        elif normalise(cell.source) in outputs_of:
            cell.outputs = [output for output in outputs_of[normalise(cell.source)] if shown(output)]
            cell.metadata["mystnb"] = {"image": {"alt": alternative(cell.source, heading)}}


def shown(output):
    """Whether an output is for readers: not the values that ride along, nor that the recording machine ran live."""
    data = output.get("data", {})
    return MIME not in data and not "".join(data.get("text/markdown", "")).startswith("**Live**")


def provenance(about):
    """A sentence that says where a recording comes from."""
    return (
        f"> The outputs on this page were recorded on an {about['gpu']} (driver {about['driver']}, "
        f"CUDA {about['cuda']}, torch {about['torch']}, Python {about['python']}) on {about['date']}, "
        f"in {about['seconds']} seconds and at most {about['peak_gpu_mib']} MiB of GPU memory. "
        "In JupyterLab the lesson runs, with or without a GPU."
    )


def alternative(source, heading):
    """What to read in place of the chart that a cell draws: the lanes or axes that it shows, and where."""
    where = f'Chart in the section "{heading}"'
    call = re.search(rf"\b({'|'.join(CHARTS)})\(.*\)", source, re.DOTALL)
    if call:
        return f"{where}: {CHARTS[call[1]]} Drawn by {re.sub(r'(?<=[(]) | (?=[)])', '', ' '.join(call[0].split()))}"
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

SOLUTIONS = """# Solutions

One way to solve each lesson's exercises. Try them first: every exercise has hints, and says where an answer parts
from the expected one.

```{toctree}
:maxdepth: 1
:glob:

[0-9]*
```
"""


def contents():
    """The site's navigation, appended to the README."""
    lessons = "\n".join(f"notebooks/{path.stem}" for path in sorted(NOTEBOOKS.glob("*.ipynb")))
    results = "\n".join(f"Benchmark, {path.stem} <{path}>" for path in RESULTS)
    beside = "\n".join(str(path.with_suffix("")) for path in BESIDE)
    captions = {
        "Lessons": f"{lessons}\nnotebooks/solutions/index",
        "Reference": f"{beside}\napi\ntraces/README\n{results}\nCONTRIBUTING",
    }
    return "".join(
        f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{listed}\n```\n" for caption, listed in captions.items()
    )


def modules():
    """The names of the modules of each room, such as helpers.trace."""
    return [f"{room}.{path.stem}" for room in ROOMS for path in sorted((ROOT / room).glob("[a-z]*.py"))]


def api():
    """The reference of every module of the rooms, from its docstrings."""
    rooms = "".join(f"- `{room}`: {what}\n" for room, what in ROOMS.items() if (ROOT / room).is_dir())
    sections = "\n".join(
        f"## {name}\n\n```{{eval-rst}}\n.. automodule:: {name}\n   :members:\n```\n" for name in modules()
    )
    return (
        f"# Modules\n\nThe small modules that lessons show, as their docstrings describe them.\n\n{rooms}\n{sections}"
    )


def copy_linked_files(page, folder):
    """Copy what a page links to, and is no page itself, to where the link finds it."""
    for target in LINK.findall(page.read_text()):
        path = (ROOT / page.parent.relative_to(folder) / target).resolve()
        if "://" not in target and path.is_file() and path.is_relative_to(ROOT):
            copy = folder / path.relative_to(ROOT)
            if not copy.exists():
                _write(copy, path.read_bytes())


def slug(heading):
    """A heading's anchor as JupyterLab makes it."""
    return heading.strip().replace(" ", "-")


def _write(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())


if __name__ == "__main__":
    write_pages()
