"""The code cells of lessons: of which kind each is, and which exercise it checks."""

import ast
import re
from contextlib import suppress
from functools import lru_cache
from typing import Any, NamedTuple

import nbformat
from IPython.core.inputtransformer2 import TransformerManager

CHECKS = ("check", "check_capture", "repaired")  # the functions that check an exercise


class CodeCell(NamedTuple):
    """A code cell: its number among the code cells (from 1), its kind, its
    source without blank lines and white space at line ends, and its outputs.

    kind: "gpu" (%%gpu), "exercise" (below ## Exercises), "guess" (assigns guess... alone), or
    "plain".
    """

    number: int
    kind: str
    source: str
    outputs: list[Any]

    def __str__(self) -> str:
        skipped = ("%%gpu", "import ", "from ")
        lines = [line for line in self.source.splitlines() if not line.startswith(skipped)]
        first = (lines or self.source.splitlines() or [""])[0]
        more = " ..." if len(lines) > 1 or len(first) > 60 else ""
        return f"code cell {self.number} ({first[:60]}{more})"


def code_cells(notebook: nbformat.NotebookNode) -> list[CodeCell]:
    """The code cells of a notebook, in order."""
    found, section = [], ""
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            section = (re.findall(r"^## (.*)", cell.source, re.MULTILINE) or [section])[-1]
        elif cell.cell_type == "code":
            source = strip_whitespace(cell.source)
            found.append(CodeCell(len(found) + 1, _kind(source, section), source, cell.outputs))
    return found


def _kind(source: str, section: str) -> str:
    if handed_on(source) is not None:
        return "gpu"
    if section.startswith("Exercises"):
        return "exercise"
    return "guess" if _is_guess(tree(source).body) else "plain"


def _is_guess(body: list[ast.stmt]) -> bool:
    """Whether a cell does nothing but assign to names that begin with guess."""

    def is_guess(node):
        match node:
            case ast.Assign([ast.Name(name)]):
                return name.startswith("guess")
        return False

    return bool(body) and all(map(is_guess, body))


def strip_whitespace(source: str) -> str:
    """Cell source without what changes nothing: blank lines and white space at line ends."""
    return "\n".join(line.rstrip() for line in source.splitlines() if line.strip())


def handed_on(source: str) -> list[str] | None:
    """The names that a %%gpu cell hands on, or None if the cell is no %%gpu cell."""
    match = re.match(r"\s*%%gpu\b(.*)", source)
    return match and match[1].split()


def python(source: str) -> str:
    """The Python of a cell without its %%gpu, %%time and %%capture lines, other magics as IPython
    runs them; "" if it is none.
    """
    return _parsed(source)[0]


def tree(source: str) -> ast.Module:
    """The syntax tree of what python() gives."""
    return _parsed(source)[1]


@lru_cache(maxsize=1024)
def _parsed(source: str) -> tuple[str, ast.Module]:
    text = re.sub(r"\A(\s*%%(gpu|time|capture)\b[^\n]*(\n|\Z))+", "", source)
    for code in (text, TransformerManager().transform_cell(text)):
        with suppress(SyntaxError):
            return code, ast.parse(code)
    return "", ast.Module([], [])


def checks_in(source: str) -> list[tuple[str, str]]:
    """The exercises that a cell checks, in order:
    ("check_capture", "make_predictor") for each call of CHECKS.
    """
    found = []
    for node in ast.walk(tree(source)):
        match node:
            case ast.Call(ast.Name(check), [ast.Name(exercise), *_]) if check in CHECKS:
                found.append((check, exercise))
    return found
