"""What one can touch on a lesson's page: its views, played on the values of its recording, without a kernel."""

import ast
import re

import nbformat
from IPython.display import HTML
from matplotlib import pyplot as plt

from course import lesson
from course.notebooks import code_cells, handed_on
from course.recording import values_in
from course.values import decode

TOUCHABLE = re.compile(r"^from course\.(touch|timeline)\b", re.MULTILINE)


def lay_views(notebook, name, recording):
    """Under each view that one can touch, lay what it gives after the plain cells before it."""
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    played = list(zip(cells, code_cells(notebook), strict=True))
    last = max((one.number for _, one in played if touchable(one)), default=0)
    if not last:
        return
    lesson._open = lesson.Lesson(name, live=False)
    lesson._open.recording = recording
    handed, names = {cell.source: values_in(cell) for cell in recording.cells}, {}
    for cell, one in played[:last]:
        if one.kind == "gpu" and one.source not in handed:
            return  # not recorded yet: nothing true to show
        if one.kind == "gpu":
            names |= {value: decode(value, handed[one.source][value]) for value in handed_on(one.source)}
        elif touchable(one):
            cell.outputs = [nbformat.v4.new_output("display_data", {"text/html": shown(one.source, names).data})]
        elif one.kind in ("plain", "guess"):
            exec(one.source, names)
    plt.close("all")


def touchable(cell):
    """Whether a cell shows something that one can touch, and does nothing else."""
    return cell.kind == "view" and bool(TOUCHABLE.search(cell.source))


def shown(source, names):
    """The value of a cell's last expression."""
    *before, last = ast.parse(source).body
    exec(compile(ast.Module(before, []), "<cell>", "exec"), names)
    value = eval(compile(ast.Expression(last.value), "<cell>", "eval"), names)
    assert isinstance(value, HTML), f"{source} gives no HTML"
    return value
