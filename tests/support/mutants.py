"""Functions that differ from one in a single place, as a learner's mistake would."""

import ast
import builtins
import copy
import tomllib

from course.paths import ROOT

LIST = (ROOT / "tests/support/accepted_mutants.toml").read_text(encoding="utf-8")
ACCEPTED: dict[str, str] = {  # changes that a check accepts: exercise and change -> why
    change: group["why"] for group in tomllib.loads(LIST)["accepted"] for change in group["changes"]
}


def mutants(source):
    """The function in source with one change each: what was changed -> its source.

    A statement dropped or swapped with the next, copy_ made an assignment, a clone, detach or
    warm-up left out, a with block unwrapped, a number changed by 1%, 10% or one, a flag turned, a
    capture moved into the function that is returned.
    """
    tree = ast.parse(source)
    original = ast.unparse(tree)
    found = {}
    for node in ast.walk(tree):
        for what, field, new in [*_statements(node), *_expressions(node)]:
            old = getattr(node, field)
            setattr(node, field, new)
            text = ast.unparse(ast.fix_missing_locations(tree))
            setattr(node, field, old)
            if text not in (original, *found.values()) and _compiles(text):
                found[what] = text
    return found


def _compiles(text):
    """Whether it is Python: `nonlocal count` is not, where `count = 0` has been dropped."""
    try:
        compile(text, "<mutant>", "exec")
    except SyntaxError:
        return False
    return True


def _statements(node):
    """Changes of the bodies of a node: what is changed, the field, and its statements then."""
    for field in ("body", "orelse"):
        body = getattr(node, field, None)
        for at in range(len(body) if isinstance(body, list) else 0):
            for what, statements in _statement_changes(body, at):
                yield what, field, statements


def _statement_changes(body, at):
    statement = body[at]
    before, after = body[:at], body[at + 1 :]
    text = _short(statement)
    is_docstring = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    if is_docstring or isinstance(statement, ast.Import | ast.ImportFrom):
        return
    if not isinstance(statement, ast.Return | ast.FunctionDef):
        yield f"drop {text}", [*before, *after] or [ast.Pass()]
    if after and _share_a_name(statement, after[0]):
        yield f"swap {text}", [*before, after[0], statement, *after[1:]]
    if isinstance(statement, ast.With):
        yield f"unwrap {text}", [*before, *statement.body, *after]
    call = getattr(statement, "value", None)
    if isinstance(statement, ast.Expr) and _method(call) == "copy_":
        yield f"assign {text}", [*before, ast.Assign([call.func.value], call.args[0]), *after]
    if isinstance(statement, ast.Assign) and "capture_step" in _names(statement):
        for number, one in enumerate(after, at + 1):
            if isinstance(one, ast.FunctionDef):
                function = copy.copy(one)
                function.body = [statement, *one.body]
                changed = [*body[:number], function, *body[number + 1 :]]
                yield f"capture in each call {text}", changed


def _expressions(node):
    """Changes of an expression: what is changed, the field, and its value then."""
    if isinstance(node, ast.keyword) and node.arg == "strict":
        return  # of zip, whose arguments are equally long
    for field, value in ast.iter_fields(node):
        values = value if isinstance(value, list) else [value]
        for at, one in enumerate(values):
            for what, new in _replacements(one):
                changed = [*values[:at], new, *values[at + 1 :]]
                whole = changed if isinstance(value, list) else new
                yield f"{what} in {_short(node)}", field, whole


def _replacements(node):
    """What an expression may be replaced by."""
    if _method(node) in ("clone", "detach") and not node.args:
        yield f"no {_method(node)}", node.func.value
    if isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield f"{node.value} turned", ast.Constant(not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        changed = [node.value + 1]
        if isinstance(node.value, float):
            changed += [node.value * 1.01, node.value * 1.1]
        for new in changed:
            yield f"{node.value} to {new:.6g}", ast.Constant(new)
    if isinstance(node, ast.keyword) and node.arg == "warmup":
        yield "no warm-up", ast.keyword("warmup", ast.Constant(0))


def _share_a_name(one, other):
    """Whether two statements share a name, so that their order may matter."""
    if any(isinstance(both, ast.Return | ast.FunctionDef) for both in (one, other)):
        return False
    return bool(_names(one) & _names(other) - {"torch", "_", *dir(builtins)})


def _method(node):
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.func.attr
    return ""


def _names(node):
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}


def _short(node):
    """The first line of a node's source."""
    return ast.unparse(node).partition("\n")[0]
