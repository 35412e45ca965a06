"""Show a part of the project's code in a notebook, without importing its file."""

import ast
from difflib import unified_diff
from textwrap import dedent

from IPython.display import Code

from course.paths import ROOT


def body_of(file: str, name: str) -> Code:
    """What follows the docstring of a function of a file, "examples/decoder.py" say.

    The file is read, not run: so it may import what is not installed here. Raises LookupError if it
    has no such function at its top level.
    """
    source = (ROOT / file).read_text(encoding="utf-8")
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef) and node.name == name:
            first = node.body[1 if ast.get_docstring(node) else 0]
            lines = source.splitlines()[first.lineno - 1 : node.end_lineno]
            return Code(dedent("\n".join(lines)), language="python")
    raise LookupError(f"{file} has no function {name}.")


def diff_of(before: str, after: str) -> Code:
    """What changes from one file to another, its docstring and imports apart."""
    texts: list[list[str]] = []
    for file in (before, after):
        source = (ROOT / file).read_text(encoding="utf-8")
        body = [node for node in ast.parse(source).body if not isinstance(node, ast.ImportFrom)]
        begin = next(node.lineno for node in body if not isinstance(node, ast.Import | ast.Expr))
        texts.append(source.splitlines()[begin - 1 :])
    lines = list(unified_diff(texts[0], texts[1], n=0, lineterm=""))[
        2:
    ]  # the first two name the files
    shown = ["" if line.startswith("@@") or line == "+" else line for line in lines]
    return Code("\n".join(shown), language="diff")
