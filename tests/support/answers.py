"""What the solutions notebooks answer to the exercises."""

import ast
import re

from course.paths import NOTEBOOKS
from tests.support.notebooks import code

RIGHT = "__right_"  # in the name of another answer that is right


def answers(path, name, variables):
    """The answers to a lesson's exercise by their names:
    its solution, and below it those named name__...

    They see the lesson's variables, what the notebook of solutions imports, and the functions,
    classes and constants that it defines above.
    """
    cells = code(NOTEBOOKS / "solutions" / path.name)
    at = [
        number
        for number, cell in enumerate(cells)
        if re.search(rf"^def {name}(__\w+)?\(", cell, re.MULTILINE)
    ]
    nodes = [
        node
        for number, cell in enumerate(cells)
        for node in ast.parse(cell).body
        if isinstance(node, ast.Import | ast.ImportFrom) or (number < at[0] and is_definition(node))
    ]
    namespace = dict(variables)
    for source in (*map(ast.unparse, nodes), *cells[at[0] : at[-1] + 1]):
        exec(source, namespace)
    return {key: value for key, value in namespace.items() if key.partition("__")[0] == name}


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
