"""What does this message mean?  python -m capturable.explain "<message>"   (or a traceback on standard input)

Looks it up in the lesson "Failure gallery": its code says which text each exhibit asserts, its
prose gives cause and mend. Needs neither a GPU nor torch.
"""

import ast
import re
import sys
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cache

import nbformat
from IPython.display import Markdown

from course.exhibits import CUDA_ERRORS
from course.recording import NOTEBOOKS, ROOT, handed_on

SECTION = re.compile(r"^### (?P<title>.+?)\n\n(?P<cause>.+?)\n\n\*\*Mend\.\*\* (?P<mend>.+?)(?:\n\n|\Z)", re.M | re.S)
LINK = re.compile(r"\[([^\]]+)\]\(([^)]+)\)")
CHAIN = re.compile(r"^During handling of the above exception.*|^The above exception was the direct cause.*", re.M)


@dataclass(frozen=True)
class Exhibit:
    """One exhibit: the texts it is known by, what tells it apart, its cause, its mend and a lesson's file name."""

    title: str
    kind: str
    says: tuple
    where: str
    error: str
    cause: str
    mend: str
    lesson: str


def lesson_path():
    """The lesson "Failure gallery", whatever its number."""
    return next(NOTEBOOKS.glob("*_failure_gallery.ipynb"))


@cache
def gallery():
    """All exhibits of the lesson, in its order."""
    path = lesson_path()
    cells = nbformat.read(path, as_version=4).cells
    prose = "\n\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    sections = {match["title"]: match for match in SECTION.finditer(prose)}
    code = [cell.source for cell in cells if cell.cell_type == "code" and handed_on(cell.source) is not None]
    calls = (node for source in code for node in ast.walk(ast.parse(source.partition("\n")[2])))
    calls = (call for call in calls if isinstance(call, ast.Call) and isinstance(call.func, ast.Name))
    names = ("fails", "alone", "silent")
    found = [_exhibit(call, sections, path.name) for call in calls if call.func.id in names]
    order = list(sections)
    return sorted(found, key=lambda exhibit: order.index(exhibit.title))


def _exhibit(call, sections, own_file):
    title, says, *more = [argument.value for argument in call.args if isinstance(argument, ast.Constant)]
    where = next((word.value.value for word in call.keywords if word.arg == "where"), "")
    loud, section = call.func.id != "silent", sections[title]
    error = "AcceleratorError" if says in CUDA_ERRORS else more[0] if loud and more else "RuntimeError"
    cause, *aliases = re.split(r" Also seen as: ", section["cause"])
    mend, _, lesson = section["mend"].partition(" Lesson: ")
    says = (CUDA_ERRORS.get(says, says), *[alias.strip("`") for alias in aliases])
    link = LINK.search(lesson)
    return Exhibit(title, "loud" if loud else "silent", says, where, error, cause, mend, link[2] if link else own_file)


def find(text):
    """The exhibits whose text occurs in a message or traceback, best first.

    Before all others comes an error, before a warning or a symptom; then the one whose code the
    traceback shows (the longest such match); then the first error of the traceback, for what
    follows is often its consequence; then the order of the lesson.
    """
    parts = [_squeezed(part) for part in CHAIN.split(text)]
    ranks = ((_rank(exhibit, text, parts), exhibit) for exhibit in gallery())
    return [exhibit for rank, exhibit in sorted((pair for pair in ranks if pair[0]), key=lambda pair: pair[0])]


def _rank(exhibit, text, parts):
    places = [
        (number, part.index(says))
        for number, part in enumerate(parts)
        for says in map(_squeezed, exhibit.says)
        if says in part
    ]
    if not places:
        return None
    code = max((match[0] for match in re.finditer(exhibit.where, text)), key=len, default="") if exhibit.where else ""
    return exhibit.kind == "silent" or exhibit.error.endswith("Warning"), -len(code), min(places)


def nearest(text, count=2):
    """The exhibits whose text is most like the last line of an unknown message."""
    line = _squeezed(text.strip().splitlines()[-1])

    def likeness(exhibit):
        return max(SequenceMatcher(None, line, _squeezed(known)).ratio() for known in (*exhibit.says, exhibit.title))

    return sorted(gallery(), key=likeness, reverse=True)[:count]


def _squeezed(text):
    return " ".join(text.lower().split())


def index(shown):
    """The gallery's index as Markdown: what one sees (from gallery.shown()), the exhibit, the lesson."""
    seen = dict(zip(shown.exhibit, shown.message, strict=True))
    rows = ["| message or symptom | exhibit | lesson |", "|---|---|---|"]
    for exhibit in gallery():
        sight = seen[exhibit.title].splitlines()[0][:110].replace("|", " ")
        link = f"[{exhibit.title}](#{exhibit.title.replace(' ', '-')})"
        lesson = exhibit.lesson[3:].removesuffix(".ipynb").replace("_", " ")
        rows.append(
            f"| {sight if exhibit.kind == 'loud' else exhibit.says[0]} | {link} | [{lesson}]({exhibit.lesson}) |"
        )
    return Markdown("\n".join(rows))


def describe(exhibit):
    """Title, cause, mend and where to read, as plain text."""
    own = lesson_path().relative_to(ROOT)
    lines = [exhibit.title, f"  cause: {exhibit.cause}", f"  mend:  {exhibit.mend}"]
    lines.append(f'  see:   {own}, under "{exhibit.title}"')
    if exhibit.lesson != own.name:
        lines.append(f"  read:  {own.parent / exhibit.lesson}")
    return "\n".join(map(_plain, lines))


def _plain(text):
    """Markdown without links, stars and paragraphs."""
    return LINK.sub(r"\1", text).replace("**", "").replace("\n\n", " ")


def main(arguments):
    """Explain the message given, or standard input; returns 0, 1 if it is unknown, 2 if there is none."""
    text = " ".join(arguments) or ("" if sys.stdin.isatty() else sys.stdin.read())
    if not text.strip():
        print('usage: python -m capturable.explain "<message>", or a traceback on standard input', file=sys.stderr)
        return 2
    found = find(text)
    if not found:
        print("The gallery has no exhibit with this message. The two whose messages are most like it:\n")
        print("\n\n".join(map(describe, nearest(text))))
        return 1
    print(describe(found[0]))
    if found[0].kind == "loud" and not re.search("captur|graph", text, re.I):
        print("\nWhat you gave names no capture or graph, so it may well have another cause.")
    same = [exhibit for exhibit in found[1:] if set(exhibit.says) & set(found[0].says)]
    if same:
        print("\nThe same message has other causes; look at the line that raised it:")
        print("\n".join(f"  {exhibit.title}: {_plain(exhibit.cause.split('. ')[0].rstrip('.'))}." for exhibit in same))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
