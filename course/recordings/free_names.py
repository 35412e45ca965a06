"""Which names a statement reads before it has bound them itself: what it takes over from others.

A name that is bound only in a branch or a loop counts as not bound after it.
"""

import ast
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

Function = ast.FunctionDef | ast.AsyncFunctionDef
Definition = Function | ast.ClassDef


def reads(node: ast.stmt) -> set[str]:
    """The names that a statement reads as it runs; of a function only its decorators and defaults,
    of a class not its methods.
    """
    reader = _Reader()
    reader.visit(node)
    return reader.found


def reads_when_called(node: ast.stmt) -> set[str]:
    """The names that the body of a function, or the methods of a class, read when called."""
    reader = _Reader()
    reader.body_of(node)
    return reader.found


class _Reader(ast.NodeVisitor):
    """Visits statements in the order in which they run."""

    def __init__(self) -> None:
        self.bound: set[str] = set()
        self.found: set[str] = set()
        self.called = False  # inside of a function, whose inner functions may be called too

    def all_of(self, nodes: Iterable[ast.AST | None]) -> None:
        for node in nodes:
            if node is not None:
                self.visit(node)

    @contextmanager
    def branch(self, *names: str) -> Iterator[None]:
        """In the block these names are bound too; what else it binds may not be bound after it."""
        before = set(self.bound)
        self.bound |= set(names)
        yield
        self.bound = before

    def body_of(self, node: ast.AST) -> None:
        self.called = True
        if isinstance(node, ast.ClassDef):
            for inner in node.body:
                self.body_of(inner)
        elif isinstance(node, Function):
            with self.branch(*_locals(node)):
                self.all_of(node.body)

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Store):
            self.bound.add(node.id)
        elif isinstance(node.ctx, ast.Del):
            self.bound.discard(node.id)
        elif node.id not in self.bound:
            self.found.add(node.id)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self.all_of([*node.decorator_list, *node.args.defaults, *node.args.kw_defaults])
        if self.called:
            self.body_of(node)
        self.bound.add(node.name)

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self.all_of([*node.decorator_list, *node.bases, *node.keywords])
        with self.branch():
            self.all_of(node.body)
        self.bound.add(node.name)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self.all_of([*node.args.defaults, *node.args.kw_defaults])
        with self.branch(*_arguments(node.args)):
            self.visit(node.body)

    def visit_Import(self, node: ast.Import | ast.ImportFrom) -> None:
        for alias in node.names:
            self.bound.add(alias.asname or alias.name.partition(".")[0])

    visit_ImportFrom = visit_Import

    def visit_Assign(self, node: ast.Assign) -> None:
        self.all_of([node.value, *node.targets])

    def visit_AnnAssign(self, node: ast.AnnAssign | ast.NamedExpr) -> None:
        if node.value:
            self.all_of([node.value, node.target])

    visit_NamedExpr = visit_AnnAssign

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if isinstance(node.target, ast.Name):
            self.visit(ast.Name(node.target.id, ast.Load()))
        self.all_of([node.value, node.target])

    def visit_If(self, node: ast.If | ast.While) -> None:
        self.visit(node.test)
        for body in (node.body, node.orelse):
            with self.branch():
                self.all_of(body)

    visit_While = visit_If

    def visit_For(self, node: ast.For | ast.AsyncFor) -> None:
        self.visit(node.iter)
        with self.branch():
            self.all_of([node.target, *node.body, *node.orelse])

    visit_AsyncFor = visit_For

    def visit_Try(self, node: Any) -> None:
        with self.branch():
            self.all_of([*node.body, *node.orelse])
        for handler in node.handlers:
            with self.branch(*filter(None, [handler.name])):
                self.all_of([handler.type, *handler.body])
        self.all_of(node.finalbody)

    visit_TryStar = visit_Try

    def visit_Match(self, node: ast.Match) -> None:
        self.visit(node.subject)
        for case in node.cases:
            names = {getattr(one, "name", None) or "" for one in ast.walk(case.pattern)}
            with self.branch(*names):
                self.all_of([case.pattern, case.guard, *case.body])

    def visit_ListComp(self, node: Any) -> None:
        with self.branch():
            for one in node.generators:
                self.all_of([one.iter, one.target, *one.ifs])
            values = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
            self.all_of(values)

    visit_SetComp = visit_DictComp = visit_GeneratorExp = visit_ListComp


def _arguments(args: ast.arguments) -> set[str]:
    every = [*args.posonlyargs, *args.args, *args.kwonlyargs, args.vararg, args.kwarg]
    return {one.arg for one in every if one}


def _locals(function: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    """The local names of a function: its arguments, and what its body binds without `global`."""
    found, shared = _arguments(function.args), set()
    queue: list[ast.AST] = list(function.body)
    while queue:
        node = queue.pop()
        match node:
            case ast.Global(names) | ast.Nonlocal(names):
                shared |= set(names)
            case ast.Name(name, ast.Store()):
                found.add(name)
            case ast.Import(names) | ast.ImportFrom(names=names):
                found |= {one.asname or one.name.partition(".")[0] for one in names}
        if isinstance(node, Definition):
            found.add(node.name)
        elif not isinstance(node, ast.Lambda | ast.comprehension):
            queue += ast.iter_child_nodes(node)
    return found - shared
