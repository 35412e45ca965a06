"""A script of examples/ on the stand-in, as it is and with some of its lines changed."""

import re
from contextlib import redirect_stdout
from io import StringIO

from course.lessons import lesson_file
from course.paths import ROOT
from cpu_graph import cpu_graphs
from tests.support.notebooks import code


def file_of(script):
    return ROOT / "examples" / f"{script}.py"


def changed(script, *changes, smaller=()):
    """The source of a script with texts replaced.

    changes: pairs of a text that the script has once and what takes its place; smaller: the same
    for sizes, which it may have several times.
    """
    source = file_of(script).read_text()
    for text, instead in changes:
        assert source.count(text) == 1, text
        source = source.replace(text, instead)
    for text, fewer in smaller:
        assert text in source, text
        source = source.replace(text, fewer)
    return source


def names_of(script, *changes, smaller=(), name="changed"):
    """What the script defines, changed; name: "__main__" runs it."""
    names = {"__name__": name}
    source = changed(script, *changes, smaller=smaller)
    exec(compile(source, str(file_of(script)), "exec"), names)
    return names


def printed_by(script, *changes):
    """What its main prints on the stand-in."""
    with cpu_graphs(), redirect_stdout(StringIO()) as printed:
        names_of(script, *changes)["main"]()
    return printed.getvalue()


def ending(run, right, errors=RuntimeError):
    """How a changed script ends: it "raises", or run returns the "same" as is right or "silent"ly
    something else.
    """
    try:
        return "same" if run() == right else "silent"
    except errors:
        return "raises"


def numbered_lines(script):
    """The numbers, as text, of the lines that the script marks: `# 3` or `# 3. no mask`."""
    return re.findall(r"  # (\d)(?:\. .*)?$", file_of(script).read_text(), re.MULTILINE)


def of_the_lesson(lesson, name):
    """The dict that a cell of the lesson, which needs no other, gives this name."""
    names = {}
    exec(next(cell for cell in code(lesson_file(lesson)) if f"{name} = {{" in cell), names)
    return names[name]
