"""Lines of code in each room, now or at a commit:  python -m docs.lines [COMMIT]

A line counts if something stands on it besides comments and docstrings. Notebooks count by their
code cells, cell magics apart.
"""

import ast
import io
import json
import subprocess
import sys
import tarfile
import tokenize
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import PurePath

from IPython.core.inputtransformer2 import TransformerManager

from course.paths import ROOT

DESCRIBED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def lines_of_code(source: str) -> int:
    """How many lines of a module hold code: no comment, docstring or blank line."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    kept = [token for token in tokens if token.string.strip() and token.type != tokenize.COMMENT]
    code = {line for token in kept for line in range(token.start[0], token.end[0] + 1)}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, DESCRIBED) and ast.get_docstring(node, clean=False) is not None:
            text = node.body[0]
            code -= set(range(text.lineno, (text.end_lineno or text.lineno) + 1))
    return len(code)


def code_of_notebook(text: str) -> str:
    """The code cells of a notebook as one module of Python; cell magics become comments."""
    cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
    lines = "\n".join("".join(cell["source"]) for cell in cells).splitlines()
    text = "\n".join(f"# {line}" if line.startswith("%%") else line for line in lines)
    return TransformerManager().transform_cell(text)


def sources_at(commit: str) -> Iterator[tuple[PurePath, str]]:
    """Yield path and text of each module and notebook of a commit."""
    packed = subprocess.check_output(["git", "archive", "--format=tar", commit], cwd=ROOT)
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        for member in archive:
            path = PurePath(member.name)
            file = archive.extractfile(member)
            if file and path.suffix in (".py", ".ipynb"):
                yield path, file.read().decode("utf-8")


def loc_counts(commit: str) -> Counter[str]:
    """Lines of code by top-level folder; solutions and answers to try checks with apart."""
    found: Counter[str] = Counter()
    for path, text in sources_at(commit):
        room = path.parts[0] if len(path.parts) > 1 else "."
        if path.parts[:2] == ("notebooks", "solutions"):
            room = "notebooks/solutions"
        elif path.parts[:3] == ("tests", "exercises", "answers"):
            room = "tests/exercises/answers"
        module = code_of_notebook(text) if path.suffix == ".ipynb" else text
        found[room] += lines_of_code(module)
    return found


def main(commit: str = "HEAD") -> None:
    """Print a line for each room, and their sum."""
    warnings.simplefilter("ignore", SyntaxWarning)  # of the code that is counted
    found = loc_counts(commit)
    for room in sorted(found):
        print(f"{found[room]:7,}  {room}")
    print(f"{found.total():7,}  all at {commit}")


if __name__ == "__main__":
    main(*sys.argv[1:2])
