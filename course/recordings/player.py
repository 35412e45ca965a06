"""Run cells without a kernel: a lesson's plain cells on
the values of a recording, for the site and the tests.
"""

import ast
import linecache
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import nbformat
from matplotlib import pyplot as plt

from course.recordings.cells import CodeCell, code_cells, handed_on, python
from course.recordings.recording import Recording, values_in
from course.recordings.values import decode


def play(
    notebook: nbformat.NotebookNode, recording: Recording, last: int | None = None
) -> Iterator[tuple[CodeCell, dict[str, Any]]]:
    """Run a lesson's plain cells, up to the cell number last, on the values of a recording of it.

    Yields each cell and all names, before it runs. Of a view only its imports run, of an exercise
    nothing. Ends at a %%gpu cell that is not recorded. The lesson is to be open: see
    course.lesson.playing.
    """
    handed = {cell.meaning: values_in(cell) for cell in recording.cells}
    names: dict[str, Any] = {}
    for cell in code_cells(notebook)[:last]:
        yield cell, names
        if cell.kind == "gpu":
            if cell.meaning not in handed:
                break
            names |= imported(cell.source)
            names |= {
                name: decode(name, handed[cell.meaning][name])
                for name in handed_on(cell.source) or ()
            }
        elif cell.kind == "view":
            run("\n".join(map(ast.unparse, ast.parse(cell.source).body[:-1])), names)
        elif cell.kind != "exercise":
            run(cell.source, names)
    plt.close("all")


def imported(source: str) -> dict[str, Any]:
    """What the imports at the top level of a %%gpu cell bind; a missing package binds nothing.

    A played cell runs them, so that the cells after it find the names which they would find live.
    """
    names: dict[str, Any] = {}
    for node in ast.parse(python(source)).body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            with suppress(ImportError):
                exec(compile(ast.Module([node], []), "<imports of a %%gpu cell>", "exec"), names)
    names.pop("__builtins__", None)
    return names


def run(source: str, names: dict[str, Any]) -> Any:
    """Run a cell among names; return the value of its last
    expression. inspect.getsource finds what it defines.
    """
    file = f"<cell {hash(source)}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    body = ast.parse(source).body
    last = body[-1] if body else None
    if isinstance(last, ast.Expr):
        body.pop()
    exec(compile(ast.Module(body, []), file, "exec"), names)
    return (
        eval(compile(ast.Expression(last.value), file, "eval"), names)
        if isinstance(last, ast.Expr)
        else None
    )
