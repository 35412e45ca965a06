"""Functions that differ from one in a single place, as a learner's mistake would."""

import ast
import builtins
import copy


def mutants(source):
    """The function in source with one change each: what was changed -> its source.

    A statement dropped or swapped with the next, copy_ made an assignment, a clone, detach or
    warm-up left out, a with block unwrapped, a number changed by 1%, 10% or one, a flag turned, a
    capture moved into the function that is returned.
    """
    tree = ast.parse(source)
    found = {}
    for number, node in enumerate(ast.walk(tree)):
        for change in (_statements, _expressions):
            for what, edit in change(node):
                changed = copy.deepcopy(tree)
                edit(list(ast.walk(changed))[number])
                text = ast.unparse(ast.fix_missing_locations(changed))
                if text != ast.unparse(tree) and text not in found.values() and _compiles(text):
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
    """Changes of the bodies of a node."""
    for name in ("body", "orelse"):
        body = getattr(node, name, None)
        if not isinstance(body, list):
            continue
        for at, statement in enumerate(body):
            yield from _statement_changes(name, body, at, statement)


def _statement_changes(name, body, at, statement):
    text = _short(statement)
    is_docstring = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    if is_docstring or isinstance(statement, ast.Import | ast.ImportFrom):
        return
    if not isinstance(statement, ast.Return | ast.FunctionDef):
        yield f"drop {text}", lambda node: _replace(getattr(node, name), at, [])
    if at + 1 < len(body) and _share_a_name(statement, body[at + 1]):
        yield f"swap {text}", lambda node: _swap(getattr(node, name), at)
    if isinstance(statement, ast.With):
        yield (
            f"unwrap {text}",
            lambda node: _replace(getattr(node, name), at, getattr(node, name)[at].body),
        )
    call = getattr(statement, "value", None)
    if isinstance(statement, ast.Expr) and _method(call) == "copy_":
        yield f"assign {text}", lambda node: _assign(getattr(node, name), at)
    if isinstance(statement, ast.Assign) and _calls(statement, "capture_step"):
        later = [n for n, one in enumerate(body) if n > at and isinstance(one, ast.FunctionDef)]
        for function in later:
            yield (
                f"capture in each call {text}",
                lambda node, function=function: getattr(node, name)[function].body.insert(
                    0, copy.deepcopy(getattr(node, name)[at])
                ),
            )


def _expressions(node):
    """Changes of an expression."""
    if isinstance(node, ast.keyword) and node.arg == "strict":
        return  # of zip, whose arguments are equally long
    for field, value in ast.iter_fields(node):
        values = value if isinstance(value, list) else [value]
        for at, one in enumerate(values):
            for what, new in _replacements(one):
                yield f"{what} in {_short(node)}", _setter(field, at, new, isinstance(value, list))


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


def _setter(field, at, new, is_list):
    def edit(node):
        if is_list:
            getattr(node, field)[at] = copy.deepcopy(new)
        else:
            setattr(node, field, copy.deepcopy(new))

    return edit


def _replace(body, at, statements):
    body[at : at + 1] = statements or ([] if len(body) > 1 else [ast.Pass()])


def _swap(body, at):
    body[at], body[at + 1] = body[at + 1], body[at]


def _assign(body, at):
    call = body[at].value
    target = copy.deepcopy(call.func.value)
    target.ctx = ast.Store()
    body[at] = ast.Assign([target], call.args[0])


def _share_a_name(one, other):
    """Whether two statements share a name, so that their order may matter."""
    if any(isinstance(both, ast.Return | ast.FunctionDef) for both in (one, other)):
        return False
    names = [
        {leaf.id for leaf in ast.walk(both) if isinstance(leaf, ast.Name)} for both in (one, other)
    ]
    return bool(names[0] & names[1] - {"torch", "_", *dir(builtins)})


def _method(node):
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.func.attr
    return ""


def _calls(node, name):
    return any(isinstance(one, ast.Name) and one.id == name for one in ast.walk(node))


def _short(node):
    """The first line of a node's source."""
    try:
        return ast.unparse(node).partition("\n")[0]
    except Exception:
        return type(node).__name__
