"""What of the project a lesson's %%gpu cells reach by
name, and a hash of each: what makes a recording stale.

A function, class or constant counts by itself and not by its module, and a text file beside it that
it names. Docstrings, comments and blank lines do not count. course.lesson is left out: it only says
where traces lie.
"""

import ast
import hashlib
import io
import tokenize
from functools import cache
from pathlib import Path

from course.paths import ROOT
from course.recordings.cells import CodeCell, python

ROOMS = ("helpers", "course", "capturable", "cpu_graph", "examples", "benchmarks")
LEFT_OUT = {
    "course.lesson",
    "helpers.charts",  # draws what was measured, and hands on nothing
    "capturable.preflight",  # today's recordings were made before it was followed
}

Bindings = dict[str, list[ast.stmt]]


def hashes(cells: list[CodeCell], root: Path = ROOT) -> dict[str, str]:
    """A short hash of all that the %%gpu cells reach: definitions
    by their full names, text files by their paths.
    """
    notebook = bindings(cells)
    places = [
        ("", name)
        for cell in cells
        if cell.kind == "gpu"
        for name in _names(ast.parse(python(cell.source)))
    ]
    found: dict[str, str] = {}
    seen: set[tuple[str, str]] = set()
    while places:
        module, name = places.pop()
        if (module, name) in seen or module in LEFT_OUT:
            continue
        seen.add((module, name))
        source, bound = _module(root, module) if module else ("", notebook)
        for node in bound.get(name.partition(".")[0], []):
            if isinstance(node, ast.Import | ast.ImportFrom):
                places += _imported(node, name, root)
                continue
            places += [(module, used) for used in _names(node)]
            if module:
                found[f"{module}.{name.partition('.')[0]}"] = _hash(node, source)
                found |= {file: text_hash(root / file) for file in _files(node, module)}
    return dict(sorted(found.items()))


def counted(definitions: dict[str, str]) -> dict[str, str]:
    """Recorded definitions without those of modules that are left out by now."""
    return {name: text for name, text in definitions.items() if _module_of(name) not in LEFT_OUT}


def _module_of(definition: str) -> str:
    return "" if "/" in definition else definition.rpartition(".")[0]


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


def bindings(cells: list[CodeCell]) -> Bindings:
    """The statements of the cells that bind each name at the top level."""
    return _bindings([node for cell in cells for node in ast.parse(python(cell.source)).body])


def binds(source: str) -> set[str]:
    """The names that a cell binds at its top level."""
    return set(_bindings(ast.parse(python(source)).body))


def _bindings(body: list[ast.stmt]) -> Bindings:
    found: Bindings = {}
    for node in body:
        for name in _bound(node):
            found.setdefault(name, []).append(node)
    return found


def _bound(node: ast.AST) -> set[str]:
    """The names that a statement binds outside of functions and classes."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {node.name}
    if isinstance(node, ast.Import | ast.ImportFrom):
        return {alias.asname or alias.name.partition(".")[0] for alias in node.names}
    own = {node.id} if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) else set()
    if isinstance(node, ast.Lambda | ast.comprehension):
        return own
    return own.union(*map(_bound, ast.iter_child_nodes(node)))


def _names(node: ast.AST) -> set[str]:
    """The names that a piece of code mentions, with the
    attribute that follows: {"measure", "ladder.RUNGS"}.
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
        return [(module, attribute)] if _module(root, module)[0] else []
    if node.module is None or node.module.partition(".")[0] not in ROOMS:
        return []
    original = next(alias.name for alias in node.names if (alias.asname or alias.name) == first)
    submodule = f"{node.module}.{original}"
    if not _module(root, submodule)[0] or original in _module(root, node.module)[1]:
        return [(node.module, original)]
    if submodule in LEFT_OUT:
        return []
    return [(submodule, one) for one in ([rest] if rest else _module(root, submodule)[1])]


@cache
def _module(root: Path, name: str) -> tuple[str, Bindings]:
    """The source of a module of the project, without
    comments, and what it binds; nothing for other modules.
    """
    path = root.joinpath(*name.split("."))
    file = next(
        (file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()), None
    )
    if name.partition(".")[0] not in ROOMS or file is None:
        return "", {}
    source = file.read_text()  # with line ends as \n, whatever git wrote
    lines = source.splitlines()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column]
    return "\n".join(lines), _bindings(ast.parse(source).body)


def _hash(node: ast.stmt, source: str) -> str:
    """Of the lines of a definition, without its docstrings;
    ast would say it differently on each Python version.
    """
    start = min(
        [node.lineno, *(decorator.lineno for decorator in getattr(node, "decorator_list", []))]
    )
    lines = source.splitlines()
    for inner in ast.walk(node):
        if isinstance(
            inner, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
        ) and ast.get_docstring(inner):
            doc = inner.body[0]
            for number in range(doc.lineno - 1, doc.end_lineno or 0):
                lines[number] = ""
    text = "\n".join(line.rstrip() for line in lines[start - 1 : node.end_lineno] if line.strip())
    return hashlib.sha256(text.encode()).hexdigest()[:12]
