"""Show a part of the project's code in a notebook, without importing its file."""

import ast
import re
from textwrap import dedent
from typing import Any

from IPython.display import Code

from course.paths import ROOT


def body_of(file: str, name: str) -> Code:
    """What follows the docstring of a function of a file, "examples/decoder.py" say.

    name: of a function, or of a class and its method, "PPO.update". The file is read, not run: so
    it may import what is not installed here. Raises LookupError if it has no such function.
    """
    source = (ROOT / file).read_text(encoding="utf-8")
    node: Any = ast.parse(source)
    for part in name.split("."):
        found = [inner for inner in node.body if getattr(inner, "name", "") == part]
        if not found:
            raise LookupError(f"{file} has no function {name}.")
        node = found[0]
    first = node.body[1 if ast.get_docstring(node) else 0]
    lines = source.splitlines()[first.lineno - 1 : node.end_lineno]
    return Code(dedent("\n".join(lines)), language="python")


def numbered_steps(file: str) -> Code:
    """The lines of a file that comments number, as in `train()  # 1. why`, without the reasons."""
    shown = []
    for number, line in enumerate((ROOT / file).read_text(encoding="utf-8").splitlines(), 1):
        if match := re.match(r"\s*(\S.*  # \d+(\.|$))", line):
            shown.append(f"{number:3}  {match[1]}")
    return Code("\n".join(shown), language="python")
