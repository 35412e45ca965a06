"""What import-linter, ruff and mypy cannot say of the rooms (pyproject.toml has their rules; `make
lint`).
"""

import ast
import importlib
import re
import sys
from functools import cache

import pytest

from course.paths import ROOT
from docs.lines import lines_of_code
from tests.support.project import PACKAGES


@cache
def of(room):
    """The modules of a room and their syntax trees."""
    return {
        path.relative_to(ROOT).with_suffix(""): ast.parse(path.read_text())
        for path in sorted((ROOT / room).rglob("*.py"))
        if "_build" not in path.parts and path.parent != ROOT / "tests/exercises/answers"
    }


def imported(tree):
    """The modules that a module imports by their full names, also by a constant text."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
        elif isinstance(node, ast.Call):
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            if name in ("__import__", "import_module"):
                yield from (text.value for text in node.args[:1] if isinstance(text, ast.Constant))


# cuda.bindings and triton come with torch's CUDA builds; the table of an audit is pandas'
WITH_TORCH = {"cuda", "triton", "pandas"}
GRAPHED = {"megatron", "pytorch_lightning", "transformer_engine", "transformers"}
MORE = {  # what a room may import besides torch
    "capturable": {"cpu_graph", "setuptools"},  # where there is no GPU, and if installed
    # its pytest plugin, and the plugin's example
    "cpu_graph": {"pytest", "graph_runner", "setuptools"},
    "examples": WITH_TORCH | GRAPHED,
}


@pytest.mark.parametrize("room", MORE)
def test_what_others_may_copy_needs_torch_alone(room):
    found = {
        name.partition(".")[0]
        for path, tree in of(room).items()
        if path.name != "overlap_ddp"  # reads its traces with helpers: nobody copies it
        for name in imported(tree)
    }
    assert "torch" in found
    assert found - sys.stdlib_module_names <= {room, "torch", *MORE[room]}


def test_helpers_are_few_and_small():
    """At most ten modules, and 1,000 lines of code."""
    files = list((ROOT / "helpers").glob("*.py"))
    assert 1 < len(files) <= 11 and sum(lines_of_code(file.read_text()) for file in files) <= 1000


@pytest.mark.parametrize("room", sorted(PACKAGES))
def test_a_room_says_what_is_in_it(room):
    names = {path.parts[1] for path in of(room) if path.name != "__init__" or len(path.parts) > 2}
    assert names - {"__main__"} <= set(re.findall(r"\w+", importlib.import_module(room).__doc__))


def test_no_test_imports_another():
    for path, tree in of("tests").items():
        parts = {part for name in imported(tree) for part in name.split(".")}
        assert not [part for part in parts if part.startswith("test_") or part == "conftest"], path


def test_an_assignment_sets_two_names_at_most():
    """Of several values, side by side; what a function returns may have more parts."""
    found = [
        f"{path}.py: {ast.unparse(node.targets[0])}"
        for room in (*sorted(PACKAGES), "docs", "tests")
        for path, tree in of(room).items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple)
        if isinstance(node.targets[0], ast.Tuple) and len(node.targets[0].elts) > 2
    ]
    assert found == []
