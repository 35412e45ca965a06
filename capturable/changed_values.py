"""Which values does a step read that change between the calls, or on which its own branches depend?

Read from the source of the user's files: a line that ran in the step reads a name, an attribute or
an item of a dict, and a line sets it again: by += and the like, in a loop, or behind a replay.
"""

import ast
import linecache
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from capturable.restore.reachable import Place, is_a
from capturable.user_lines import Line

PLAIN = (bool, int, float, str, type(None))
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
SHARED = ast.Attribute | ast.Subscript
BUILDING = ("__init__", "__post_init__", "__new__")  # set what an object begins with


class ValueRead(NamedTuple):
    """A line of the step that reads a value: its name, whether a branch depends on it, the line of
    the same file that changes it, and whether that is one of the step."""

    line: Line
    name: str
    branches: bool
    changed_at: int
    in_step: bool


def reads_of_changed_values(lines: Iterable[Line], places: Iterable[Place]) -> Iterator[ValueRead]:
    """Each read of a plain value that is changed outside of the step, and each branch on one that
    the step changes. lines: those that ran."""
    ran: dict[str, dict[int, Line]] = {}
    for line in lines:
        ran.setdefault(line.file, {})[line.number] = line
    attributes = {place.key for place in places if _is_plain(place) and isinstance(place.key, str)}
    names = {place.label.rpartition(".")[2] for place in places if _is_plain(place)}
    for file, known in ran.items():
        try:
            tree = ast.parse("".join(linecache.getlines(file)))
        except (SyntaxError, ValueError):  # a cell with magics, generated code
            continue
        changes = dict(sorted(_reassignments(tree), key=lambda change: change[1] not in known))
        tests = {id(node) for test in _branch_conditions(tree) for node in ast.walk(test)}
        for node in ast.walk(tree):
            if not isinstance(node, SHARED | ast.Name) or not isinstance(node.ctx, ast.Load):
                continue
            key, branches = _target_key(node), id(node) in tests
            held = key[1] in (names if key[0] == "name" else attributes)
            if held and node.lineno in known and key in changes:
                in_step = changes[key] in known
                if branches or not in_step:
                    name = ast.unparse(node)
                    yield ValueRead(known[node.lineno], name, branches, changes[key], in_step)


def _is_plain(place: Place) -> bool:
    return is_a(place.get(), PLAIN)


def _target_key(node: ast.AST) -> tuple[str, str]:
    """What a read or an assignment names: an attribute, of whatever object, an item of a dict, or
    a variable."""
    if isinstance(node, ast.Attribute):
        return "attribute", node.attr
    if isinstance(node, ast.Subscript):
        key = node.slice.value if isinstance(node.slice, ast.Constant) else ""
        return f"item of {_target_key(node.value)[1]}", key if isinstance(key, str) else ""
    return "name", node.id if isinstance(node, ast.Name) else ""


def _reassignments(tree: ast.AST, inside: str = "", loop: bool = False) -> Iterator[tuple]:
    """Each attribute and variable that is set again, and the line."""
    declared = {
        name
        for node in ast.iter_child_nodes(tree)
        if isinstance(node, ast.Global | ast.Nonlocal)
        for name in node.names
    }
    for node in ast.iter_child_nodes(tree):
        loop = loop or (isinstance(node, ast.Expr) and _is_graph_replay(node.value))
        if isinstance(node, FUNCTIONS):
            yield from _reassignments(node, node.name)
            continue
        looping = loop or isinstance(node, ast.For | ast.While)
        if isinstance(node, ast.AugAssign | ast.For) or (loop and isinstance(node, ast.Assign)):
            for target in _assigned_targets(node):
                key = _target_key(target)
                variable = isinstance(target, ast.Name) and target.id in declared
                shared = isinstance(target, SHARED) or not inside or variable
                if key[1] and shared and inside not in BUILDING:
                    yield key, node.lineno
        yield from _reassignments(node, inside, looping)


def _assigned_targets(node: ast.AugAssign | ast.For | ast.Assign) -> Iterator[ast.AST]:
    """What an assignment or a loop sets, each name of a tuple by itself."""
    for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
        yield from target.elts if isinstance(target, ast.Tuple) else [target]


def _is_graph_replay(node: ast.AST) -> bool:
    """Whether a call replays a graph: what is set behind it is set between two replays."""
    called = node.func if isinstance(node, ast.Call) else None
    return isinstance(called, ast.Attribute) and called.attr == "replay"


def _branch_conditions(tree: ast.AST) -> Iterator[ast.AST]:
    for node in ast.walk(tree):
        if isinstance(node, ast.If | ast.IfExp | ast.While):
            yield node.test
