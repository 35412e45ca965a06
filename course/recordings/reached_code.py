"""What of the project a lesson's %%gpu cells reach by name, and a hash of each.

A function, class or constant counts by itself and not by its module, and a text file beside it that
it names. Docstrings, comments, type hints and line breaks do not count. course.lesson is left out,
because it only says where traces are, and helpers.charts, because it only draws what was measured.
"""

import ast
import hashlib
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from course.paths import ROOT
from course.recordings.statements import bound, canonical, short_hash

ROOMS = (
    "helpers",
    "course",
    "exercises",
    "capturable",
    "cpu_graph",
    "examples",
    "benchmarks",
    "trace_report",
)
LEFT_OUT = {"course.lesson", "helpers.charts"}

Bindings = dict[str, list[ast.stmt]]


def hashes(notebook: Iterable[ast.stmt], root: Path = ROOT) -> dict[str, str]:
    """A short hash of all that these statements of a notebook reach in the project: definitions by
    their full names, text files by their paths.
    """
    body = list(notebook)
    own = _bindings(body)
    places = [("", name) for node in body for name in _names(node)]
    found: dict[str, str] = {}
    seen: set[tuple[str, str]] = set()
    while places:
        module, name = places.pop()
        if (module, name) in seen or module in LEFT_OUT:
            continue
        seen.add((module, name))
        known = _module(root, module) if module else own
        for node in known.get(name.partition(".")[0], []):
            if isinstance(node, ast.Import | ast.ImportFrom):
                places += _imported(node, name, root)
                continue
            places += [(module, used) for used in _names(node)]
            places += _imported_inside(node, root)
            if module:
                found[f"{module}.{name.partition('.')[0]}"] = short_hash(canonical(node))
                found |= {file: text_hash(root / file) for file in _files(node, module)}
    return dict(sorted(found.items()))


def redefined(now: dict[str, str], then: dict[str, str]) -> list[str]:
    """The definitions that differ, by their full names; one that only moved, text and all, does
    not.
    """

    def pairs(found: dict[str, str]) -> set[tuple[str, str]]:
        return {(_own_name(name), text) for name, text in found.items()}

    differ = pairs(now) ^ pairs(then)
    every = [*now.items(), *then.items()]
    return sorted({name for name, text in every if (_own_name(name), text) in differ})


def redefined_on_disk(then: dict[str, str], root: Path = ROOT) -> list[str]:
    """Those of these definitions that no longer have this text, here or in another module."""
    differ = {
        name: text
        for name, text in then.items()
        if "/" not in name and text not in _texts(root, *name.rpartition(".")[::2])
    }
    if not differ:
        return []
    modules = [
        ".".join(file.relative_to(root).with_suffix("").parts)
        for room in ROOMS
        for file in (root / room).rglob("*.py")
    ]
    return [
        name
        for name, text in differ.items()
        if not any(text in _texts(root, module, _own_name(name)) for module in modules)
    ]


def _texts(root: Path, module: str, name: str) -> list[str]:
    """Hashes of the statements of a module that bind a name."""
    return [short_hash(canonical(node)) for node in _module(root, module).get(name, [])]


def _own_name(definition: str) -> str:
    return definition if "/" in definition else definition.rpartition(".")[2]


def text_hash(file: Path) -> str:
    """A short hash of a text file, however its lines end; "" if there is none."""
    return (
        hashlib.sha256(file.read_text(encoding="utf-8").encode()).hexdigest()[:12]
        if file.is_file()
        else ""
    )


def source_file(definition: str, root: Path = ROOT) -> str:
    """The file of a definition, by its full name, as a path in the project."""
    module = root.joinpath(*definition.split(".")[:-1])
    file = module.with_suffix(".py") if not module.is_dir() else module / "__init__.py"
    return str(file.relative_to(root))


def forget_modules() -> None:
    """Read the project's files anew from here on: they may have been edited."""
    _module.cache_clear()


def _bindings(body: Iterable[ast.stmt]) -> Bindings:
    """The statements that bind each name."""
    found: Bindings = {}
    for node in body:
        for name in bound(node):
            found.setdefault(name, []).append(node)
    return found


def _names(node: ast.AST) -> set[str]:
    """The names that a piece of code mentions, with the attribute that follows: {"measure",
    "ladder.RUNGS"}.
    """
    found = {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}
    for inner in ast.walk(node):
        if isinstance(inner, ast.Attribute):
            chain = ast.unparse(inner)
            if all(part.isidentifier() for part in chain.split(".")):
                found.add(chain)
    return found


def _files(node: ast.AST, module: str) -> set[str]:
    """The text files beside a module that a definition names, by their paths in the project."""
    names = [str(inner.value) for inner in ast.walk(node) if isinstance(inner, ast.Constant)]
    return {
        f"{module.rpartition('.')[0].replace('.', '/')}/{name}"
        for name in names
        if name.endswith(".txt")
    }


def _imported(node: ast.Import | ast.ImportFrom, name: str, root: Path) -> list[tuple[str, str]]:
    """The places in the project that a name, bound by an import, can mean."""
    first, _, rest = name.partition(".")
    if isinstance(node, ast.Import):
        module, _, attribute = name.rpartition(".")
        return [(module, attribute)] if _file(root, module) else []
    if node.module is None or node.module.partition(".")[0] not in ROOMS:
        return []
    original = next(alias.name for alias in node.names if (alias.asname or alias.name) == first)
    submodule = f"{node.module}.{original}"
    if not _file(root, submodule) or original in _module(root, node.module):
        return [(node.module, original)]
    if submodule in LEFT_OUT:
        return []
    return [(submodule, one) for one in ([rest] if rest else _module(root, submodule))]


def _imported_inside(definition: ast.AST, root: Path) -> list[tuple[str, str]]:
    """The places in the project that the imports in a function's body mean."""
    return [
        place
        for node in ast.walk(definition)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        for place in _imported(node, alias.asname or alias.name, root)
    ]


def _file(root: Path, module: str) -> Path | None:
    """The file of a module of the project; None for other modules."""
    path = root.joinpath(*module.split("."))
    files = (path.with_suffix(".py"), path / "__init__.py")
    own = module.partition(".")[0] in ROOMS
    return next((file for file in files if file.is_file()), None) if own else None


@cache
def _module(root: Path, name: str) -> Bindings:
    """What a module of the project binds; nothing for other modules."""
    file = _file(root, name)
    return _bindings(ast.parse(file.read_text(encoding="utf-8")).body) if file else {}
