"""The rooms: what lies where, imports that run one way, small modules and functions, typed and described."""

import ast
import importlib
import re
import sys

import pytest

from course.paths import ROOT

# what a room may import besides the standard library and the packages named in pyproject.toml
MAY_IMPORT = {
    "helpers": {"helpers"},
    "cpu_graph": {"cpu_graph", "torch"},
    "examples": {"cuda", "examples", "torch"},  # cuda.bindings comes with torch's CUDA builds
    "capturable": {"capturable", "torch"},
    "course": {"capturable", "course", "cpu_graph", "examples", "helpers"},
    "benchmarks": {"benchmarks", "course", "examples", "helpers"},
}
ONLY = ("capturable", "cpu_graph", "examples")  # these need nothing else
ROOMS = [room for room in MAY_IMPORT if (ROOT / room).is_dir()]
MODULES = {
    f"{room}.{path.relative_to(ROOT / room).with_suffix('')}".replace("/", "."): path
    for room in ROOMS
    for path in sorted((ROOT / room).rglob("*.py"))
}
named = pytest.mark.parametrize("name", MODULES)
described = pytest.mark.parametrize("name", [name for name in MODULES if not name.startswith("cpu_graph.")])


def tree(name):
    return ast.parse(MODULES[name].read_text())


def imported(name):
    """The first name of every module that this one imports, also by a string for __import__."""
    for node in ast.walk(tree(name)):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield name.partition(".")[0] if node.level else node.module.partition(".")[0]
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("__import__", "importlib.import_module"):
            yield getattr(node.args[0], "value", "a name").partition(".")[0]


@named
def test_imports_run_one_way(name):
    room, found = name.partition(".")[0], set(imported(name))
    ours = found & {*MAY_IMPORT, "docs", "tests"}
    assert ours <= MAY_IMPORT[room]
    if room in ONLY:
        assert found <= MAY_IMPORT[room] | sys.stdlib_module_names
    if room == "helpers":
        assert "IPython" not in found


def test_helpers_are_few_and_small():
    paths = [path for name, path in MODULES.items() if name.startswith("helpers.")]
    assert len([path for path in paths if path.name != "__init__.py"]) <= 10
    assert sum(len(path.read_text().splitlines()) for path in paths) <= 1000


@named
def test_modules_and_functions_are_short(name):
    lines = MODULES[name].read_text().splitlines()
    assert len(lines) <= 150
    functions = [node for node in ast.walk(tree(name)) if isinstance(node, ast.FunctionDef)]
    of = {node.name: lines[node.lineno - 1 : node.end_lineno] for node in functions}
    lengths = {node.name: len(written(of[node.name])) - len(written(docstring(node))) for node in functions}
    assert {name: length for name, length in lengths.items() if length > 25} == {}


def written(lines):
    """Lines that are not blank."""
    return [line for line in lines if line.strip()]


def docstring(node):
    return (ast.get_docstring(node, clean=False) or "").splitlines()


def public(name):
    """The public functions and methods of a module, by their names."""
    body = tree(name).body
    classes = [node for node in body if isinstance(node, ast.ClassDef) and not node.name.startswith("_")]
    nodes = [*body, *(node for one in classes for node in one.body)]
    return [node for node in nodes if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")]


def untyped(function):
    """The arguments of a function that have no type, and "return"."""
    of = function.args
    arguments = [*of.posonlyargs, *of.args, *of.kwonlyargs, *filter(None, (of.vararg, of.kwarg))]
    bare = [one.arg for one in arguments if one.annotation is None and one.arg not in ("self", "cls")]
    return bare + ["return"] * (function.returns is None and function.name != "__init__")


@described
def test_public_functions_carry_types(name):
    assert {function.name: untyped(function) for function in public(name) if untyped(function)} == {}


@described
def test_public_functions_say_what_they_do(name):
    assert docstring(tree(name)), "the module's docstring"
    functions = [function for function in public(name) if not is_property(function)]
    assert [function.name for function in functions if not docstring(function)] == []


def is_property(function):
    return any("property" in ast.unparse(decorator) for decorator in function.decorator_list)


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_says_what_is_in_it(room):
    modules = {name.split(".")[1] for name in MODULES if name.startswith(f"{room}.")} - {"__init__", "__main__"}
    assert modules <= set(re.findall(r"\w+", importlib.import_module(room).__doc__ or ""))
