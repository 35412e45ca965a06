"""What is answered to the exercises: the solutions notebooks, and tests/exercises/answers/."""

import ast
import re

from course.lessons import unnumbered
from course.paths import NOTEBOOKS, ROOT
from course.recordings.statements import IMPORT
from exercises.answers.solutions import is_stub
from tests.support.mutants import ACCEPTED, mutants
from tests.support.notebooks import code

ANSWERS = ROOT / "tests/exercises/answers"  # <lesson>.py: wrong answers, and other right ones
RIGHT = "__right_"  # in the name of another answer that is right
GIVEN = "__as_given"  # the lesson's own function, where it is to be repaired
USUAL = {  # mistakes that are made in every solution that has such a line once
    "eager": (r"replay(\([^()]*\))\.clone\(\)", r"step\1"),
    "warm_up_kept": (r"with unchanged\([^()]*\):", "if True:"),
}
# those of tests/support/mutants.py that are made wherever a solution has such a line
LEFT_OUT = re.compile(r"no clone|drop .*\b(wait_stream|wait_event|set_rng_state)\(")


def answers(path, name, variables):
    """The answers to a lesson's exercise by their names: its solution, those named name__..., the
    lesson's own function where it does something, what changed(...) makes of one of them, and the
    solution with a usual mistake.

    They see the lesson's variables, what the notebook of solutions imports, and the functions,
    classes and constants that it and the file of answers define above.
    """
    namespace = dict(variables)
    written = [*_given(path, name), *_solution(path, name), *_others(path, name)]
    for statement in [*written, *_usual(name, written), *_changed(path, name, written)]:
        exec(compile(ast.Module([statement], []), f"<answer to {name}>", "exec"), namespace)
    return {
        key: value
        for key, value in namespace.items()
        if key.partition("__")[0] == name and not is_stub(value)
    }


def _given(path, name):
    """The cell in which the lesson gives the function, that one renamed and without docstring."""
    cell = next(cell for cell in code(path) if re.search(rf"^def {name}\(", cell, re.MULTILINE))
    for node in ast.parse(cell).body:
        if getattr(node, "name", "") == name:
            node.body = node.body[ast.get_docstring(node) is not None :] or node.body
            node.name += GIVEN
        yield node


def _changed(path, name, written):
    """The answers that differ from a written one in a few places.

    changed(base, kind={old: new}) in the file of answers stands for a function base__kind: the text
    of base, as ast.unparse writes it, with new in the place of old.
    """
    texts = {getattr(node, "name", ""): ast.unparse(node) for node in written}
    for node in _file(path):
        if isinstance(node, ast.Expr) and _exercise(node) == name:
            for change in node.value.keywords:
                made = edited(texts[node.value.args[0].id], ast.literal_eval(change.value))
                yield _renamed(made, f"{name}__{change.arg}")


def _usual(name, written):
    """The solution with each usual mistake that it has a place for."""
    text = next(ast.unparse(node) for node in written if getattr(node, "name", "") == name)
    for kind, (pattern, mistake) in USUAL.items():
        found, made = re.findall(pattern, text), re.sub(pattern, mistake, text)
        if len(found) == 1 and (kind != "eager" or "def step(" in text):
            yield _renamed(made, f"{name}__{kind}")
    for what, made in mutants(text).items():
        if LEFT_OUT.match(what) and f"{name}: {what}" not in ACCEPTED:
            yield _renamed(made, f"{name}__{what}")


def _renamed(text, name):
    (function,) = ast.parse(text).body
    function.name = re.sub(r"\W+", "_", name).strip("_")
    return function


def edited(text, changes):
    """text with each key of changes replaced by its value; a line of which nothing is left goes.

    A key stands in one place. Further lines of it and of its value are indented as the line on
    which the key begins. In a value, … stands for the key.
    """
    text = re.sub(r"\n+", "\n", text)
    spans = []
    for old, new in changes.items():
        found = list(_places(text, old))
        if len(found) != 1:
            raise LookupError(f"{old!r} stands in {len(found)} places of\n{text}")
        start, end, margin = found[0]
        spans.append((start, end, new.replace("…", old).replace("\n", margin)))
    for start, end, new in sorted(spans, reverse=True):
        text = text[:start] + new + text[end:]
    return "\n".join(line for line in text.splitlines() if line.strip())


def _places(text, old):
    """Where old begins and ends, and the line break with the margin of the line."""
    at = 0
    for line in text.splitlines(keepends=True):
        margin = "\n" + " " * (len(line) - len(line.lstrip()))
        lines = old.replace("\n", margin)
        for start in range(at, at + len(line)):
            if text.startswith(lines, start):
                yield start, start + len(lines), margin
        at += len(line)


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
        if isinstance(node, IMPORT) or number == at or (number < at and is_definition(node)):
            yield node


def _others(path, name):
    """The other answers, with what is defined above them in their file."""
    statements = _file(path)
    own = [n for n, node in enumerate(statements) if _exercise(node) == name]
    for node in statements[: own[-1] + 1 if own else 0]:
        if _exercise(node) in ("", name) and not isinstance(node, ast.Expr):
            yield node


def _file(path):
    """The statements of a lesson's file of answers, below its docstring."""
    file = ANSWERS / f"{unnumbered(path.stem)}.py"
    return ast.parse(file.read_text(encoding="utf-8")).body[1:]


def _exercise(node):
    """The exercise that a statement of the file answers; "" for what answers share."""
    if isinstance(node, ast.Expr):  # changed(base, ...)
        return node.value.args[0].id.partition("__")[0]
    answer = isinstance(node, ast.FunctionDef) and re.fullmatch(r"(\w+?)__\w+", node.name)
    return answer[1] if answer else ""


def is_definition(node):
    """Whether a statement defines a function, a class or a constant."""
    if isinstance(node, ast.Assign):
        return ast.unparse(node.targets[0]).isupper()
    return isinstance(node, ast.FunctionDef | ast.ClassDef)


def solution_source(path, name):
    """The source of a solution's function, without anything that its notebook has around it."""
    for cell in code(NOTEBOOKS / "solutions" / path.name):
        for node in ast.parse(cell).body:
            if isinstance(node, ast.FunctionDef) and node.name == name:
                return ast.get_source_segment(cell, node)
    raise LookupError(f"{path.name} has no solution of {name}")
