"""What one can touch on a lesson's page: its views, played on the values of its recording, without a kernel."""

import ast
import linecache
import re

import nbformat
from matplotlib import pyplot as plt

from course import lesson
from course.notebooks import code_cells, handed_on
from course.recording import values_in
from course.values import decode

SHOWN = re.compile(r"^from course\.(touch|beside)\b", re.MULTILINE)


def lay_views(notebook, recording):
    """Under each view of these modules, lay what it gives after the plain cells before it."""
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    found = [one.number for one in code_cells(notebook) if one.kind == "view" and SHOWN.search(one.source)]
    for one, names in play(notebook, recording, max(found, default=0)):
        if one.number in found:
            data = {"text/html": value(one, names)._repr_html_()}
            cells[one.number - 1].outputs = [nbformat.v4.new_output("display_data", data)]


def play(notebook, recording, last=None):
    """Run a lesson's plain cells, up to the cell number last, on the values of a recording of it.

    Yields each cell and all names, before it runs; it ends at a %%gpu cell that is not recorded.
    """
    lesson._open = lesson.Lesson(recording.path.stem, live=False)
    lesson._open.recording = recording
    handed, names = {cell.source: values_in(cell) for cell in recording.cells}, {}
    for one in code_cells(notebook)[:last]:
        yield one, names
        if one.kind == "gpu":
            if one.source not in handed:
                break
            names |= {name: decode(name, handed[one.source][name]) for name in handed_on(one.source)}
        elif one.kind != "exercise":
            run(one, names)
    plt.close("all")


def run(cell, names):
    """Run a cell, of a view only what it imports; inspect.getsource finds what it defines."""
    file, body = f"<cell {cell.number}>", ast.parse(cell.source).body
    linecache.cache[file] = (len(cell.source), None, cell.source.splitlines(keepends=True), file)
    exec(compile(ast.Module(body[:-1] if cell.kind == "view" else body, []), file, "exec"), names)


def value(view, names):
    """What a view shows."""
    run(view, names)
    return eval(compile(ast.Expression(ast.parse(view.source).body[-1].value), "<view>", "eval"), names)
