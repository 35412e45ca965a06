"""What a lesson, its exercises and its exhibits still lack:  python -m exercises.unfinished

A sentence for each thing that was begun and not
finished, with the fix. The tests ask it of every lesson.
"""

import ast
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import nbformat

from capturable.causes import entries, standard_cause_name
from course.lessons import NO_PART, PARTS, lessons, part_of, unnumbered
from course.paths import REFERENCE_GPU, TRACES, short
from course.recordings.cells import checks_in, handed_on, python
from exercises import scenarios

EXHIBITS = ("fails", "silent", "alone")  # what the gallery shows failures with


def missing_parts(path: Path) -> list[str]:
    """What the lesson in this notebook lacks but its recording, a sentence each.

    Its solutions are in the folder solutions beside it.
    """
    sources, prose = _read(path)
    return [
        *_lesson_without_part(path),
        *_without_solution(path, sources),
        *_checks_in_stub_cells(sources),
        *_without_scenario(unnumbered(path.stem), sources),
        *_exhibits_without_title(sources, prose),
    ]


def missing_recording(path: Path, traces: Path = TRACES) -> list[str]:
    """A sentence if the lesson in this notebook has %%gpu cells and no recording on the reference
    GPU.
    """
    lesson = unnumbered(path.stem)
    recording = traces / REFERENCE_GPU / f"{lesson}.json"
    if recording.exists() or all(handed_on(source) is None for source in _read(path)[0]):
        return []
    return [
        f"The lesson {lesson} has no recording {short(recording)}: make it on a machine with a "
        f'CUDA GPU by `make record ARGS="{lesson}"`.'
    ]


def all_missing(paths: Iterable[Path]) -> list[str]:
    """What these lessons lack, their recordings too, a sentence each."""
    return [said for path in paths for said in [*missing_parts(path), *missing_recording(path)]]


def _read(path: Path) -> tuple[list[str], str]:
    """The sources of a notebook's code cells, and its prose."""
    cells = nbformat.read(path, as_version=4).cells
    sources = [cell.source for cell in cells if cell.cell_type == "code"]
    return sources, "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")


def _lesson_without_part(path: Path) -> Iterator[str]:
    if part_of(path) not in PARTS:
        yield NO_PART.format(path=short(path), parts=", ".join(PARTS))


def _without_solution(path: Path, sources: list[str]) -> Iterator[str]:
    exercises = list(dict.fromkeys(name for source in sources for _, name in checks_in(source)))
    solutions = path.parent / "solutions" / path.name
    if not solutions.exists():
        yield (
            f"There is no {short(solutions)}: write it, with a function for each exercise "
            f"({', '.join(exercises)})."
        )
        return
    solved = {name for source in _read(solutions)[0] for name in _defined(source)}
    for name in exercises:
        if name not in solved:
            yield f"The exercise {name} has no solution: define {name} in {short(solutions)}."


def _checks_in_stub_cells(sources: list[str]) -> Iterator[str]:
    for source in sources:
        for check, name in checks_in(source):
            if name in _defined(source):
                yield (
                    f"The stub of {name} and its check are in one cell: put {check}({name}) into a "
                    "cell of its own, for the tests put the solution between the two."
                )


def _without_scenario(lesson: str, sources: list[str]) -> Iterator[str]:
    for check, name in (pair for source in sources for pair in checks_in(source)):
        if check == "check_capture":
            try:
                scenarios.find_scenario(lesson, name)
            except LookupError as error:
                yield str(error)


def _exhibits_without_title(sources: list[str], prose: str) -> Iterator[str]:
    """Exhibits of the gallery: capturable explains each under its title, and the index links it to
    the heading of its name.
    """
    headings = set(re.findall(r"^### (.+)$", prose, re.MULTILINE))
    names = {entry.title: standard_cause_name(entry) for entry in entries()}
    for show, title in (pair for source in sources for pair in _exhibits_in_cell(source)):
        if not title:
            yield (
                f"An exhibit has no title: give {show}(title, ...) one, and an entry of this title "
                "to capturable/causes.json."
            )
        elif title not in names:
            yield (
                f"The exhibit {title!r} is not explained: add an entry of this title to "
                "capturable/causes.json."
            )
        elif names[title] not in headings:
            yield f"The exhibit {title!r} has no heading: write ### {names[title]} above its cell."


def _defined(source: str) -> set[str]:
    """The functions that a cell defines."""
    return {
        node.name for node in ast.parse(python(source)).body if isinstance(node, ast.FunctionDef)
    }


def _exhibits_in_cell(source: str) -> Iterator[tuple[str, str]]:
    """What shows each exhibit in a cell, and its title; "" for one without."""
    known = {}  # titles by the names that they are given above
    for node in ast.walk(ast.parse(python(source))):
        match node:
            case ast.Assign([ast.Name(name)], ast.Constant(str(title))):
                known[name] = title
            case ast.Call(ast.Name(show), [ast.Constant(str(title)), *_]) if show in EXHIBITS:
                yield show, title
            case ast.Call(ast.Name(show), [ast.Name(name), *_]) if show in EXHIBITS:
                yield show, known.get(name, "")
            case ast.Call(ast.Name(show)) if show in EXHIBITS:
                yield show, ""


def main() -> int:
    """Print what every lesson lacks; returns 1 if there is anything."""
    found = all_missing(lessons())
    print("\n".join(found) or "Every lesson has what it needs.")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
