"""What of the project a lesson's %%gpu cells reach by name, and a hash of each.

A function, a method, a constant and the rest of a class count each by itself and not by their
module; so do a file that one of them names, and what a module does as it is imported. Docstrings,
comments, type hints and line breaks do not count, nor what counts.py leaves out. A tool is one
entry: its version, and a hash of all its code and data. Files are read anew once they change.
"""

import ast
import hashlib
import os
import re
import tomllib
from collections.abc import Iterable
from contextlib import suppress
from functools import cache, lru_cache
from glob import escape
from importlib.machinery import BYTECODE_SUFFIXES, EXTENSION_SUFFIXES, SOURCE_SUFFIXES
from pathlib import Path
from typing import Any, NamedTuple

import nbformat

from course.paths import ROOT
from course.recordings.counts import ROOMS, TOOLS, affects_recordings, tool_of_module
from course.recordings.free_names import Definition, Function
from course.recordings.statements import IMPORT, bound, nested_lists_of, parsed, short_hash

SUFFIXES = (*EXTENSION_SUFFIXES, *SOURCE_SUFFIXES, *BYTECODE_SUFFIXES)  # in Python's order
REBINDING = {"globals", "locals", "vars", "setattr", "delattr", "exec", "eval", "__import__"}
INSIDE = {"__dict__", "__globals__", "__setattr__", "__delattr__", "setattr", "delattr"}
DUNDER = re.compile("__.*__")
Bindings = dict[str, list[ast.stmt]]  # the statements that bind each name, in order


class Module(NamedTuple):
    """A module of the project: what its statements bind, those that do more than bind names, and
    the modules that it imports.
    """

    bindings: Bindings
    effects: list[ast.stmt]
    imports: set[str]


def hashes(notebook: Iterable[ast.stmt], root: Path = ROOT) -> dict[str, str]:
    """A short hash of all that these statements of a notebook reach in the project: definitions and
    modules by their full names, files by their paths, a tool by its name.
    """
    return dict(sorted(_Reached(root, list(notebook)).found.items()))


def redefined(now: dict[str, str], then: dict[str, str], root: Path = ROOT) -> list[str]:
    """What is reached now and was not reached then, or with another text, by its full name.

    One that only moved, text and all, does not differ: its first module has lost the name. Nor does
    a tool.
    """
    moved = {(_unqualified(name), text) for name, text in then.items() if not _is_there(root, name)}
    return [
        name
        for name, text in now.items()
        if name not in TOOLS
        and text != then.get(name)
        and (name in then or (_unqualified(name), text) not in moved)
    ]


def lost_names(now: dict[str, str], then: dict[str, str]) -> list[str]:
    """What was reached then and is not reached now, not even in another module."""
    texts = {(_unqualified(name), text) for name, text in now.items()}
    return [
        name
        for name, text in then.items()
        if name not in {*now, *TOOLS} and (_unqualified(name), text) not in texts
    ]


def lost_files(then: dict[str, str], root: Path = ROOT) -> list[str]:
    """The files among what was reached then that are there no more."""
    return [name for name in then if "/" in name and not _is_there(root, name)]


def tool_changes(now: dict[str, str], then: dict[str, str]) -> dict[str, tuple[str, str]]:
    """The tools of which this is another copy than then: the version then, and the one now."""
    both = [tool for tool in TOOLS if tool in now and tool in then]
    return {tool: (then[tool], now[tool]) for tool in both if now[tool] != then[tool]}


class _Reached:
    """What a notebook's statements reach, followed from name to name: found, and a hash of each."""

    def __init__(self, root: Path, notebook: list[ast.stmt]) -> None:
        self.root = root
        self.notebook = _bindings(notebook)
        self.found: dict[str, str] = {}
        self.places: list[tuple[str, str]] = []  # names in modules, still to be followed
        self.seen: set[tuple[str, str]] = set()
        self.loaded: set[str] = set()
        self.attributes: set[str] = set()  # that the code reached so far mentions
        self.methods: dict[str, tuple[str, list[ast.stmt]]] = {}  # which it has not mentioned yet
        for node in notebook:
            self._add_mentions("", node)
        while self.places or self._take_methods():
            if self.places:
                self._follow(*self.places.pop())

    def _follow(self, module: str, name: str) -> None:
        if (module, name) in self.seen or not affects_recordings(module):
            return
        self.seen.add((module, name))
        if tool := tool_of_module(module):
            if tool not in self.found:
                self.found[tool], others = version_and_uses(self.root, tool)
                self.places += [(other, "") for other in others]
            return
        first = name.partition(".")[0]
        known = _module(self.root, module).bindings if module else self.notebook
        nodes = [*known.get(first, []), *known.get("*", [])]
        for node in nodes:
            if isinstance(node, IMPORT):
                self._import(_targets_of(node, name, self.root))
            if isinstance(node, ast.ImportFrom) and "*" in bound(node):
                self.places.append((node.module or "", "__all__"))  # which names come along
        own = [node for node in nodes if not isinstance(node, IMPORT)]
        if not module or not own:
            return
        self._load(module)
        rests = [_without_methods(node) for node in own]
        hashed = [_hash(node) for node in (rests if len(nodes) == 1 else nodes)]
        self.found[f"{module}.{first}"] = hashed[0] if len(hashed) == 1 else short_hash(hashed)
        for node, rest in zip(own, rests, strict=True):
            self._add_mentions(module, rest)
            for method in _methods_if_mentioned(node):
                full_name = f"{module}.{first}.{method.name}"
                self.methods.setdefault(full_name, (module, []))[1].append(method)

    def _add_mentions(self, module: str, node: ast.AST) -> None:
        """A piece of code counts: follow what it mentions."""
        self.places += [(module, name) for name in _names(node)]
        self._import(_inner_import_targets(node, self.root))
        self.attributes |= _attributes(node)
        self.found |= _named_file_hashes(node, module, self.root)

    def _import(self, places: list[tuple[str, str]]) -> None:
        """Code imports these names: follow them; one that its module does not bind has no text."""
        self.places += places
        for module, name in places:
            first = name.partition(".")[0]
            known = _module(self.root, module).bindings
            is_name = first and not DUNDER.fullmatch(first) and affects_recordings(module)
            if is_name and not tool_of_module(module) and not {first, "*"} & known.keys():
                self.found[f"{module}.{first}"] = ""

    def _take_methods(self) -> bool:
        """The methods that something has mentioned by now count; returns whether there were any."""
        mentioned = [name for name in self.methods if _unqualified(name) in self.attributes]
        for name in mentioned:
            module, nodes = self.methods.pop(name)
            self.found[name] = short_hash([_hash(node) for node in nodes])
            for node in nodes:
                self._add_mentions(module, node)
        return bool(mentioned)

    def _load(self, name: str) -> None:
        """A module is imported, and with it the packages around it and all that these import: what
        they do then counts.
        """
        known = name in self.loaded or tool_of_module(name) or not affects_recordings(name)
        if known or not module_file(name, self.root):
            return
        self.loaded.add(name)
        module = _module(self.root, name)
        if module.effects:
            self.found[name] = short_hash([_hash(node) for node in module.effects])
        for node in module.effects:
            self._add_mentions(name, node)
        for other in {name.rpartition(".")[0], *module.imports} - {""}:
            self._load(other)


def version_and_uses(root: Path, tool: str) -> tuple[str, set[str]]:
    """A tool's version and a hash of its code and data, "0.2.0+5f3c81d0a2b4", and the tools that it
    uses.
    """
    folder = root / tool.replace(".", "/")
    module = folder.with_suffix(".py")
    projects = (one / "pyproject.toml" for one in (folder, *folder.parents))
    project = tomllib.loads(next(filter(Path.is_file, projects)).read_text(encoding="utf-8"))
    files = [
        file
        for file in sorted([module, *folder.rglob("*.*")])
        if file.suffix in (".py", ".toml", ".json") and file.name != "pyproject.toml"
        if file.is_file()
    ]
    content = [(str(file.relative_to(root)), file_hash(file)) for file in files]
    modules = [_read_module(file) for file in files if file.suffix == ".py"]
    used = {tool_of_module(name) for module in modules for name in module.imports}
    return f"{project['project']['version']}+{short_hash(content)}", used - {tool, ""}


def file_hash(file: Path) -> str:
    """A short hash of a file: of a module its code, of a text its lines, however they end."""
    found = file.stat()
    return _file_hash(file, found.st_mtime_ns, found.st_size)


@lru_cache(maxsize=512)
def _file_hash(file: Path, changed: int, size: int) -> str:
    content = file.read_bytes()
    if file.suffix == ".py":
        return short_hash(nested_lists_of(ast.parse(content)))
    with suppress(UnicodeDecodeError):  # no text
        content = file.read_text(encoding="utf-8").encode()
    return hashlib.sha256(content).hexdigest()[:12]


def module_of(definition: str, root: Path = ROOT) -> str:
    """The module of a definition, both by their full names; "" if there is none."""
    parts = definition.split(".")
    modules = (".".join(parts[:end]) for end in range(len(parts), 0, -1))
    return next((module for module in modules if module_file(module, root)), "")


def module_file(module: str, root: Path = ROOT) -> Path | None:
    """The file of a module of the project; None for other modules."""
    path = root.joinpath(*module.split("."))
    if module.partition(".")[0] not in ROOMS:
        return None
    files = (f"{place}{suffix}" for place in (path / "__init__", path) for suffix in SUFFIXES)
    # a Path for each would take three times as long
    return next((Path(file) for file in files if os.path.isfile(file)), None)  # noqa: PTH113


def _unqualified(definition: str) -> str:
    return definition if "/" in definition else definition.rpartition(".")[2]


def _is_there(root: Path, name: str) -> bool:
    """Whether what has this name in hashes() is still there: the file, or a definition of the
    module and not only an import.
    """
    if "/" in name:
        return (root / name).is_file() or bool(_notebooks_named(root, name))
    module = module_of(name, root)
    first = name.removeprefix(f"{module}.").partition(".")[0]
    nodes = _module(root, module).bindings.get(first, [])
    return name == module or not all(isinstance(node, IMPORT) for node in nodes)


def _bindings(body: Iterable[ast.stmt]) -> Bindings:
    found: Bindings = {}
    for node in body:
        for name in bound(node):
            found.setdefault(name, []).append(node)
    return found


@cache
def _hash(node: ast.AST) -> str:
    return short_hash(nested_lists_of(node))


@cache
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


@cache
def _attributes(node: ast.AST) -> set[str]:
    """The names by which a piece of code may reach a method; a text may be given to getattr."""
    found: set[str] = set()
    for inner in ast.walk(node):
        match inner:
            case ast.Attribute(attr=name) | ast.Constant(str(name)):
                found.add(name)
            case ast.MatchClass(kwd_attrs=names):
                found |= set(names)
    return found


@cache
def _methods_if_mentioned(node: ast.AST) -> list[Any]:
    """The methods of a class that count only if they are mentioned: all but those that Python
    itself calls, of a class that inherits nothing which might call them.
    """
    if not isinstance(node, ast.ClassDef) or node.bases or node.keywords:
        return []
    functions = [inner for inner in node.body if isinstance(inner, Function)]
    return [function for function in functions if not DUNDER.fullmatch(function.name)]


@cache
def _without_methods(node: Any) -> ast.AST:
    methods = _methods_if_mentioned(node)
    if not methods:
        return node
    body = [inner for inner in node.body if inner not in methods]
    return ast.ClassDef(**{**dict(ast.iter_fields(node)), "body": body})


def _named_file_hashes(node: ast.AST, module: str, root: Path) -> dict[str, str]:
    """Hashes of the files that a piece of code names: beside its module, or a lesson's notebook, of
    which the functions count.
    """
    folder = module.rpartition(".")[0].replace(".", "/") if module else "notebooks"
    found = {}
    for pattern in _patterns(node):
        for file in (root / folder).glob(pattern):
            file = Path(os.path.normpath(file))  # a link counts by its own name
            if file.is_file() and file.is_relative_to(root) and file.suffix != ".py":
                found[str(file.relative_to(root))] = file_hash(file)
    for inner in ast.walk(node):
        match inner:
            case ast.Call(ast.Name("lesson_file"), [ast.Constant(str(name))]):
                for file in _notebooks_named(root, f"notebooks/{name}"):
                    found[f"notebooks/{name}"] = _hash_of_functions(file)
    return found


@cache
def _patterns(node: ast.AST) -> list[str]:
    """The texts in a piece of code that may name files, with * for what is put into them."""
    found = []
    for inner in ast.walk(node):
        match inner:
            case ast.Constant(str(text)):
                found.append(escape(text))
            case ast.JoinedStr(parts):
                texts = [getattr(part, "value", "") for part in parts]
                whole = (escape(text) if isinstance(text, str) else "*" for text in texts)
                found.append("".join(whole))
    return [text for text in found if re.fullmatch(r"(\.\./)?[^\s/]([^\n/]|/(?!/))*\.\w+", text)]


def _notebooks_named(root: Path, name: str) -> list[Path]:
    """The notebook that has this name without its number: "notebooks/start_here"."""
    folder, _, own = name.rpartition("/")
    return list((root / folder).glob(f"[0-9]*_{escape(own)}.ipynb"))


def _hash_of_functions(notebook: Path) -> str:
    """A hash of the functions that a notebook's code cells define."""
    cells = nbformat.read(notebook, as_version=4).cells
    sources = [cell.source for cell in cells if cell.cell_type == "code"]
    found = [one for source in sources for one in parsed(source).statements]
    return short_hash([one.hash for one in found if isinstance(one.node, Function)])


def _targets_of(node: ast.Import | ast.ImportFrom, name: str, root: Path) -> list[tuple[str, str]]:
    """The places in the project that a name, bound by an import, can mean."""
    first, _, rest = name.partition(".")
    if isinstance(node, ast.Import):
        module, _, attribute = name.rpartition(".")
        return [(module, attribute)] if module_file(module, root) else []
    if node.module is None or node.module.partition(".")[0] not in ROOMS:
        return []
    originals = [one.name for one in node.names if (one.asname or one.name) in (first, "*")]
    original = originals[0] if originals and originals[0] != "*" else first
    submodule = f"{node.module}.{original}"
    if not module_file(submodule, root) or original in _module(root, node.module).bindings:
        return [(node.module, original)]
    if not affects_recordings(submodule):
        return []
    return [(submodule, one) for one in ([rest] if rest else _module(root, submodule).bindings)]


def _inner_import_targets(definition: ast.AST, root: Path) -> list[tuple[str, str]]:
    """The places in the project that the imports in a function's body mean."""
    return [
        place
        for node in ast.walk(definition)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        for place in _targets_of(node, alias.asname or alias.name, root)
    ]


def _module(root: Path, name: str) -> Module:
    """A module of the project as its file is now; an empty one for other modules."""
    file = module_file(name, root)
    return _read_module(file) if file else Module({}, [], set())


def _read_module(file: Path) -> Module:
    found = file.stat()
    return _parse_module(file, found.st_mtime_ns, found.st_size)


@lru_cache(maxsize=512)
def _parse_module(file: Path, changed: int, size: int) -> Module:
    """The module in a file, which was last changed then, and has that many bytes; an empty one for
    a compiled file, which says not what it binds.
    """
    body = ast.parse(file.read_bytes()).body if file.suffix == ".py" else []
    imports = set()
    for node in body:
        match node:
            case ast.Import(names):
                imports |= {one.name for one in names}
            case ast.ImportFrom(str(module), names):
                imports |= {module, *(f"{module}.{one.name}" for one in names)}
    functions = {node.name for node in body if isinstance(node, Function)}
    # what the module calls parts of the project
    own = {*ROOMS}.union(*map(_project_import_names, ast.walk(ast.Module(body, []))))
    functions |= {name for name in own if name.islower()}  # no class
    effects = [node for node in body if _has_effects(node, functions) or _may_patch(node, own)]
    return Module(_bindings(body), effects, imports)


def _project_import_names(node: ast.AST) -> set[str]:
    """The names that an import gives parts of the project."""
    match node:
        case ast.ImportFrom(str(module)) if module.partition(".")[0] in ROOMS:
            return bound(node)
        case ast.Import(names):
            return {one.asname for one in names if one.asname and one.name.split(".")[0] in ROOMS}
    return set()


def _may_patch(definition: ast.stmt, own: set[str]) -> bool:
    """Whether a function or a method, once it is called, may bind names of a module of the project:
    of its own, or of one that has one of these names (own).
    """
    if not isinstance(definition, Definition):
        return False
    for node in ast.walk(definition):
        match node:
            case (
                ast.Global() | ast.Name("globals") | ast.Attribute(attr="__dict__" | "__globals__")
            ):
                return True
            case ast.Attribute(ctx=ast.Store()) if bound(node) & own:
                return True
            case ast.Call(ast.Name("setattr"), [ast.Name(name), *_]) if name in own:
                return True
    return False


def _has_effects(node: ast.stmt, functions: set[str]) -> bool:
    """Whether a module's statement does more than bind names, as it is imported: those of Python
    itself (__path__) count, and so does what may bind others, by a call of these functions too.
    """
    match node:
        case ast.Import() | ast.ImportFrom() | ast.Expr(ast.Constant()):
            return False
        case ast.If(
            ast.Compare(ast.Name("__name__"), [ast.Eq()], [ast.Constant("__main__")]), _, []
        ):
            return False
        case (
            ast.Assign()
            | ast.AnnAssign()
            | ast.AugAssign()
            | ast.ClassDef()
            | ast.FunctionDef()
            | ast.AsyncFunctionDef()
        ):
            special = {name for name in bound(node) if DUNDER.fullmatch(name)}
            return bool(special - {"__all__", "__version__"}) or _may_rebind(node, functions)
    return True


def _may_rebind(node: ast.AST, functions: set[str]) -> bool:
    """Whether what runs as a definition is imported may bind other names: its value, decorators and
    defaults, and the body of a class.
    """
    match node:
        case ast.Name(name) if name in REBINDING:
            return True
        case ast.Attribute(attr=name) if name in INSIDE:
            return True
        case ast.Call(ast.Name(name)) if name in functions:
            return True
        case ast.Attribute(ctx=ast.Store()) | ast.Subscript(ctx=ast.Store()):
            return True
    inner = ast.iter_child_nodes(node)
    if isinstance(node, Function):
        inner = iter([*node.decorator_list, node.args])
    if isinstance(node, ast.Lambda):  # which calls none as it is made
        functions = set()
    return any(_may_rebind(one, functions) for one in inner)
