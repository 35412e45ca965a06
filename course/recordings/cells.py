"""The code cells of lessons: of which kind each is, and which exercise it checks."""

import ast
import re
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import nbformat

from course.paths import NOTEBOOKS

CHECKS = ("check", "check_capture", "repaired")  # the functions that check an exercise


class CodeCell(NamedTuple):
    """A code cell: its number among the code cells (from 1), its kind, its
    source without blank lines and white space at line ends, and its outputs.

    kind: "gpu" (%%gpu), "exercise" (below ## Exercises), "guess" (assigns guess...
    alone), "view" (only shows something, by a function of course/), or "plain".
    """

    number: int
    kind: str
    source: str
    outputs: list[Any]

    @property
    def meaning(self) -> str:
        """What of its source can change what it does: two cells are the same where this is."""
        return meaning(self.source)

    def __str__(self) -> str:
        lines = [
            line
            for line in self.source.splitlines()
            if not line.startswith(("%%gpu", "import ", "from "))
        ]
        first = (lines or self.source.splitlines() or [""])[0]
        return (
            f"code cell {self.number} "
            f"({first[:60]}{' ...' if len(lines) > 1 or len(first) > 60 else ''})"
        )


def code_cells(notebook: nbformat.NotebookNode) -> list[CodeCell]:
    """The code cells of a notebook, in order."""
    found, section = [], ""
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            section = (re.findall(r"^## (.*)", cell.source, re.MULTILINE) or [section])[-1]
        elif cell.cell_type == "code":
            source = normalise(cell.source)
            found.append(CodeCell(len(found) + 1, _kind(source, section), source, cell.outputs))
    return found


def _kind(source: str, section: str) -> str:
    if handed_on(source) is not None:
        return "gpu"
    if section.startswith("Exercises"):
        return "exercise"
    body = _body(source)
    return "guess" if _is_guess(body) else "view" if _is_view(body) else "plain"


def _body(source: str) -> list[ast.stmt]:
    try:
        return ast.parse(source).body
    except SyntaxError:
        return []


def _is_guess(body: list[ast.stmt]) -> bool:
    """Whether a cell does nothing but assign to names that begin with guess."""
    targets = [target for node in body if isinstance(node, ast.Assign) for target in node.targets]
    names = [
        target.id
        for target in targets
        if isinstance(target, ast.Name) and target.id.startswith("guess")
    ]
    return bool(body) and len(names) == len(targets) == len(body)


def _is_view(body: list[ast.stmt]) -> bool:
    """Whether a cell does nothing but import from course/
    and call one of the imported on names and constants.
    """
    imports, last = [node for node in body[:-1] if isinstance(node, ast.ImportFrom)], body[-1:]
    if len(imports) + 1 != len(body) or not all(
        (node.module or "").startswith("course.") for node in imports
    ):
        return False
    imported = {alias.asname or alias.name for node in imports for alias in node.names}
    calls = [
        node for node in ast.walk(last[0]) if isinstance(node, ast.Call | ast.NamedExpr | ast.Await)
    ]
    of = last[0].value if isinstance(last[0], ast.Expr) else None
    return calls == [of] and isinstance(of, ast.Call) and getattr(of.func, "id", "") in imported


def that_count(cells: list[CodeCell]) -> list[CodeCell]:
    """The cells that a recording depends on: all but guesses, exercises and views."""
    return [cell for cell in cells if cell.kind in ("gpu", "plain")]


def normalise(source: str) -> str:
    """Cell source without what changes nothing: blank lines and white space at line ends."""
    return "\n".join(line.rstrip() for line in source.splitlines() if line.strip())


def meaning(source: str) -> str:
    """Cell source as it counts: without comments, line breaks that change nothing, and %%time."""
    text = re.sub(r"\A\s*%%time[ \t]*\n", "", normalise(source))
    first, _, rest = text.partition("\n") if handed_on(text) is not None else ("", "", text)
    with suppress(SyntaxError):  # as with other magics, whose text counts
        rest = ast.unparse(ast.parse(rest))
    return normalise(f"{first}\n{rest}")


def handed_on(source: str) -> list[str] | None:
    """The names that a %%gpu cell hands on, or None if the cell is no %%gpu cell."""
    match = re.match(r"\s*%%gpu\b(.*)", source)
    return match and match[1].split()


def python(source: str) -> str:
    """The Python of a cell, its %%gpu line left out; "" if it is none, as with other magics."""
    text = source if handed_on(source) is None else source.lstrip().partition("\n")[2]
    try:
        ast.parse(text)
    except SyntaxError:
        return ""
    return text


def checked(source: str) -> list[tuple[str, str]]:
    """The exercises that a cell checks, in order:
    ("check_capture", "make_predictor") for each call of CHECKS.
    """
    found = []
    for node in ast.walk(ast.parse(python(source))):
        match node:
            case ast.Call(ast.Name(check), [ast.Name(exercise), *_]) if check in CHECKS:
                found.append((check, exercise))
    return found


def lessons() -> list[Path]:
    """The notebooks that have %%gpu cells, in reading order."""
    paths = sorted(NOTEBOOKS.glob("*.ipynb")) + sorted(NOTEBOOKS.glob("solutions/*.ipynb"))
    return [
        path
        for path in paths
        if any(cell.kind == "gpu" for cell in code_cells(nbformat.read(path, as_version=4)))
    ]
