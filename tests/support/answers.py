"""What is answered to the exercises: the solutions notebooks, and tests/exercises/answers/."""

import ast
import re

from course.lessons import unnumbered
from course.paths import NOTEBOOKS, ROOT
from tests.support.notebooks import code

ANSWERS = ROOT / "tests/exercises/answers"  # <lesson>.py: wrong answers, and other right ones
RIGHT = "__right_"  # in the name of another answer that is right


def answers(path, name, variables):
    """The answers to a lesson's exercise by their names: its solution, and those named name__...

    They see the lesson's variables, what the notebook of solutions imports, and the functions,
    classes and constants that it and the file of answers define above.
    """
    namespace = dict(variables)
    for statement in [*_solution(path, name), *_others(path, name)]:
        exec(compile(ast.Module([statement], []), f"<answer to {name}>", "exec"), namespace)
    return {key: value for key, value in namespace.items() if key.partition("__")[0] == name}


def namespace(path, name):
    """What a solution sees: its notebook's imports, and what it defines above the solution."""
    seen = {}
    for statement in _solution(path, name):
        exec(compile(ast.Module([statement], []), f"<solution of {name}>", "exec"), seen)
    return seen


def _solution(path, name):
    """The statements of the solutions notebook that its solution needs, and the solution."""
    statements = [
        node for cell in code(NOTEBOOKS / "solutions" / path.name) for node in ast.parse(cell).body
    ]
    at = next(number for number, node in enumerate(statements) if getattr(node, "name", "") == name)
    for number, node in enumerate(statements):
        if _imports(node) or number == at or (number < at and is_definition(node)):
            yield node


def _others(path, name):
    """The other answers, with what is defined above them in their file."""
    file = ANSWERS / f"{unnumbered(path.stem)}.py"
    statements = ast.parse(file.read_text(encoding="utf-8")).body[1:]
    own = [n for n, node in enumerate(statements) if _exercise(node) == name]
    for node in statements[: own[-1] + 1 if own else 0]:
        if _exercise(node) in ("", name):
            yield node


def _exercise(node):
    """The exercise that a statement of the file answers; "" for what answers share."""
    answer = isinstance(node, ast.FunctionDef) and re.fullmatch(r"(\w+?)__\w+", node.name)
    return answer[1] if answer else ""


def _imports(node):
    return isinstance(node, ast.Import | ast.ImportFrom)


def is_definition(node):
    """Whether a statement defines a function, a class or a constant."""
    if isinstance(node, ast.Assign):
        return ast.unparse(node.targets[0]).isupper()
    return isinstance(node, ast.FunctionDef | ast.ClassDef)


def alone(path, name):
    """The source of a solution's function, without anything that its notebook has around it."""
    for cell in code(NOTEBOOKS / "solutions" / path.name):
        for node in ast.parse(cell).body:
            if isinstance(node, ast.FunctionDef) and node.name == name:
                return ast.get_source_segment(cell, node)
    raise LookupError(f"{path.name} has no solution of {name}")
