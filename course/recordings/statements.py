"""The statements on which a %%gpu cell depends, and hashes of them.

A cell depends on the statement that last bound each name that it reads, and on those on which that
statement depends. So neither the cell that holds a statement counts, nor comments, docstrings, type
hints, line breaks, and statements that bind nothing: asserts, charts, prints.
"""

import ast
import hashlib
import json
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from course.recordings.cells import CodeCell, handed_on, tree
from course.recordings.counts import affects_recordings
from course.recordings.free_names import Definition, reads, reads_when_called

IMPORT = ast.Import | ast.ImportFrom
PERHAPS = ast.If | ast.For | ast.AsyncFor | ast.While | ast.Try | ast.TryStar | ast.Match
LEFT_OUT = {"annotation", "returns", "type_params", "type_comment", "kind", "ctx"}


class Statement(NamedTuple):
    """A statement at the top level of a cell; an import of several names is several."""

    node: ast.stmt
    hash: str
    binds: frozenset[str]
    reads: frozenset[str] = frozenset()  # as it runs
    later: frozenset[str] = frozenset()  # when the function or class that it defines is used

    def __str__(self) -> str:
        return ast.unparse(self.node).partition("\n")[0][:60]


class ParsedCell(NamedTuple):
    """A cell's source, parsed: the names that it hands on (None: it is no %%gpu cell), its
    statements, none if it is no Python, and a hash of what it does as a %%gpu cell.
    """

    source: str
    hands_on: list[str] | None
    statements: tuple[Statement, ...]
    hash: str

    def binds(self) -> set[str]:
        """The names that its statements bind, and those that it hands on."""
        return {*(self.hands_on or ())}.union(*(one.binds for one in self.statements))


@lru_cache(maxsize=1024)
def parsed(source: str) -> ParsedCell:
    """A cell, from its source."""
    body, names = tree(source).body, handed_on(source)
    found = tuple(_statement(node) for whole in body for node in _one_import_per_name(whole))
    whole = nested_lists_of(ast.Module(body, [])) if body else source.split()
    return ParsedCell(source, names, found, short_hash([names, whole]))


def _statement(node: ast.stmt) -> Statement:
    binds, read = frozenset(bound(node)), frozenset(reads(node))
    later = frozenset(reads_when_called(node))
    return Statement(node, short_hash(nested_lists_of(node)), binds, read, later)


def _one_import_per_name(node: ast.stmt) -> list[ast.stmt]:
    """An import as imports of one name each; import a.b binds a, whatever b is."""
    if isinstance(node, ast.ImportFrom):
        return [ast.ImportFrom(node.module, [alias], node.level) for alias in node.names]
    if isinstance(node, ast.Import):
        names = [(one.name if one.asname else one.name.split(".")[0], one) for one in node.names]
        return [ast.Import([ast.alias(name, one.asname)]) for name, one in names]
    return [node]


def bound(node: ast.AST) -> set[str]:
    """The names that a statement binds, deletes, or assigns an item or attribute of, outside of
    functions and classes.
    """
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return {node.name}
        case ast.Import(names) | ast.ImportFrom(names=names):
            return {alias.asname or alias.name.partition(".")[0] for alias in names}
        case ast.Lambda() | ast.comprehension():
            return set()
        case ast.Name(name, ast.Store() | ast.Del()):
            return {name}
        case ast.AnnAssign(value=None):
            return set()
        case (
            ast.Subscript(ctx=ast.Store() | ast.Del()) | ast.Attribute(ctx=ast.Store() | ast.Del())
        ):
            base: ast.AST = node
            while isinstance(base, ast.Subscript | ast.Attribute):
                base = base.value
            return {base.id} if isinstance(base, ast.Name) else set()
    return set().union(*map(bound, ast.iter_child_nodes(node)))


def needed_statements(cell: ParsedCell, before: Sequence[Statement]) -> list[Statement]:
    """The statements of other cells on which a cell depends, in the order in which they ran.

    before: all that ran before the cell, in order.
    """
    own = cell.statements
    ran = [*before, *own]
    seen: set[tuple[int, int]] = set()
    places = [(name, len(before) + i) for i, one in enumerate(own) for name in one.reads]
    places += [(name, len(ran)) for one in own for name in one.later]
    while places:
        name, end = places.pop()
        at = next((i for i in reversed(range(end)) if name in ran[i].binds), None)
        if at is None or (at, end) in seen:
            continue
        seen.add((at, end))
        one = ran[at]
        places += [(read, at) for read in one.reads]
        places += [(read, when) for read in one.later for when in {end, len(ran)}]
        if isinstance(one.node, PERHAPS):
            places.append((name, at))  # it may still be as it was bound before
    known = {one.hash for one in own}
    return [ran[at] for at in sorted({at for at, _ in seen}) if ran[at].hash not in known]


def hash_all(found: Iterable[Statement]) -> str:
    """A hash of statements, in whichever order they ran and however often."""
    return short_hash(sorted({one.hash for one in found}))


def nested_lists_of(node: Any) -> Any:
    """Code as JSON, without what changes nothing; the same on every version of Python."""
    if isinstance(node, ast.AnnAssign) and node.value:
        node = ast.Assign([node.target], node.value)
    if isinstance(node, ast.ImportFrom) and node.module and not affects_recordings(node.module):
        node = ast.ImportFrom(None, node.names, 0)
    if isinstance(node, ast.AST):
        fields = ((name, nested_lists_of(value)) for name, value in _hashed_fields(node))
        return [type(node).__name__, *([name, value] for name, value in fields if value)]
    if isinstance(node, list):
        return [nested_lists_of(item) for item in node]
    return repr(node) if node is not None else None


def _hashed_fields(node: ast.AST) -> Iterable[tuple[str, Any]]:
    for name, value in ast.iter_fields(node):
        if name == "body" and isinstance(node, Definition) and ast.get_docstring(node) is not None:
            yield name, value[1:]
        elif name not in LEFT_OUT:
            yield name, value


def short_hash(content: Any) -> str:
    """The first 12 hexadecimal digits of the SHA-256 of JSON."""
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:12]


def cell_needs(cells: Iterable[CodeCell]) -> list[tuple[CodeCell, list[Statement]]]:
    """Each %%gpu cell of a notebook, with the statements of other cells on which it depends."""
    before: list[Statement] = []
    found = []
    for cell in cells:
        if cell.kind == "gpu":
            found.append((cell, needed_statements(parsed(cell.source), before)))
        before += parsed(cell.source).statements
    return found
