"""Rename a function, class or constant all over the project:

    python -m course.commands.rename_helper OLD_NAME NEW_NAME

Code, cells and pages follow. The program must be the same but for the name, so the recordings that
were fresh at the last commit are carried over from there.
"""

import argparse
import ast
import keyword
import re
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import nbformat

from course.commands.carry_over import carry_over
from course.commands.renumber import update_cells, update_texts
from course.files import changed
from course.paths import ROOT, short
from course.recordings.cells import python
from course.recordings.reached_code import ROOMS
from course.recordings.statements import IMPORT, bound

TEXTS = (
    "README.md",
    "CONTRIBUTING.md",
    "*/README.md",
    "docs/**/*.*",
    "**/*.py",
    "**/*.toml",
    "capturable/*.json",
)


def rename(old: str, new: str, root: Path = ROOT) -> list[Path]:
    """Rename it, and return the texts, modules and notebooks that named it.

    Raises LookupError if no module defines old; ValueError if new is taken, or if old names
    something else too.
    """
    trees = list(_trees(root))
    homes = {
        path.stem
        for path, tree in trees
        for node in tree.body
        if path.suffix == ".py" and old in bound(node) and not isinstance(node, IMPORT)
    }
    if not homes:
        raise LookupError(f"No module of {', '.join(ROOMS)} defines {old}.")
    if not new.isidentifier() or keyword.iskeyword(new):
        raise ValueError(f"{new!r} is no name that Python takes.")
    for path, tree in trees:
        for node in ast.walk(tree):
            if new in _names(node):
                raise ValueError(f"{new} is taken: {short(path)} uses it.")
            if old in _names(node) and not _is_ours(node, homes):
                raise ValueError(
                    f"{old} is also an attribute or an argument in {short(path)}: rename one of "
                    "the two by hand first."
                )
    update = partial(re.compile(rf"\b{old}\b").sub, new)
    return [*update_cells(root, update, lambda code: True), *update_texts(root, TEXTS, update)]


def _trees(root: Path) -> Iterator[tuple[Path, ast.Module]]:
    """The modules of the project and its tests, and the code of the notebooks."""
    for room in (*ROOMS, "docs", "tests"):
        for path in (root / room).rglob("*.py"):
            yield path, ast.parse(path.read_text(encoding="utf-8"))
    for path in sorted(root.glob("notebooks/**/*.ipynb")):
        cells = nbformat.read(path, as_version=4).cells
        for cell in (cell for cell in cells if cell.cell_type == "code"):
            yield path, ast.parse(python(cell.source))


def _names(node: ast.AST) -> set[str | None]:
    """The names that a piece of syntax uses itself."""
    fields = (getattr(node, field, None) for field in ("id", "name", "asname", "arg", "attr"))
    return {name for name in fields if isinstance(name, str)}


def _is_ours(node: ast.AST, homes: set[str]) -> bool:
    """Whether the name in this syntax can be that of a definition in one of these modules."""
    if isinstance(node, ast.Attribute):  # of a module: timing.measure
        return bool({getattr(node.value, "id", ""), getattr(node.value, "attr", "")} & homes)
    return not isinstance(node, ast.keyword | ast.arg)


def main(arguments: list[str] | None = None) -> int:
    """Rename, carry the recordings over, and say what changed; return 1, after a sentence, after a
    mistake, or if a recording is refused.
    """
    parser = argparse.ArgumentParser(prog="make rename-helper", description=__doc__.splitlines()[0])
    parser.add_argument("old", help="the name of a function, class or constant: make_batches")
    parser.add_argument("new", help="its new name")
    options = parser.parse_args(arguments)
    if files := changed():
        print(f"Commit or undo first what you have changed: {', '.join(files)}.", file=sys.stderr)
        return 1
    try:
        paths = rename(options.old, options.new)
    except (LookupError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    carried, refused = carry_over("HEAD", (options.old, options.new))
    print(f"{options.old} is {options.new} in {', '.join(str(short(path)) for path in paths)}.")
    print(f"Carried over: {', '.join(carried) or 'no recording had named it'}.")
    for sentence in refused:
        print(f"Not carried over: {sentence}.", file=sys.stderr)
    return 1 if refused else 0


if __name__ == "__main__":
    sys.exit(main())
