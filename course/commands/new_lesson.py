"""Begin a lesson:  python -m course.commands.new_lesson VERB_OBJECT NUMBER

Writes its notebook, the notebook of its solutions, the scenarios of its exercises and answers to
try them with, from lesson_template/: a small lesson that passes the tests of form, to be rewritten
piece by piece.
"""

import argparse
import sys
from pathlib import Path

import nbformat

from course.commands.rename import (
    file_stems,
    refuse_taken_name,
    renumber_file_names,
    split_lesson_name,
)
from course.lessons import PARTS, part_of
from course.paths import ROOT, short

TEMPLATE = Path(__file__).with_name("lesson_template")
NEXT = """Written: {files}.
It belongs to the part {part!r} of the course, as its notebook's metadata say.

Next:
1. Write the lesson in {lesson}: CONTRIBUTING.md says what form it has.
2. make test ARGS="-k {name}" says what is missing.
3. make record ARGS="{name}" on a machine with a CUDA GPU.
   Until then one test fails, the others skip it, and no list or page shows it.
4. make fix writes its minutes, its row in every list of lessons and its page in read/.
   Add it to a row of the README's table of readers, and its terms to docs/glossary.md.
"""


def new_lesson(name: str, number: int, root: Path = ROOT) -> list[Path]:
    """Write a lesson's files, and return them; the lesson before it gives it its part.

    Raises ValueError for a name or number that is none, or is taken already.
    """
    if split_lesson_name(name)[0]:
        raise ValueError(f"{name!r} is no name of a lesson: give its number after the name.")
    refuse_taken_name(name, root)
    present = file_stems(root)
    numbers = {int(stem[:2]): stem for stem in present.values()}
    if not 0 <= number < 100:
        raise ValueError(f"Lessons are numbered from 0 to 99: there is no {number}.")
    if number in numbers:
        raise ValueError(
            f"{number} is the number of {numbers[number]}: begin the lesson at a free one, and "
            "`make rename` moves lessons."
        )
    files = present | {name: f"{number:02}_{name}"}
    texts = {
        root / f"notebooks/{files[name]}.ipynb": "lesson.ipynb",
        root / f"notebooks/solutions/{files[name]}.ipynb": "solutions.ipynb",
        root / f"exercises/scenarios/{name}.py": "scenario.py",
        root / f"tests/exercises/answers/{name}.py": "answers.py",
    }
    if found := [path for path in texts if path.exists()]:
        raise ValueError(f"{short(found[0])} is there already: move it away first.")
    for path, template in texts.items():
        text = (TEMPLATE / template).read_text(encoding="utf-8")
        text = text.replace("verb_object", name).replace("Verb object", title(name))
        path.write_text(renumber_file_names(text, files), encoding="utf-8")
    lesson = next(iter(texts))
    before = [numbers[taken] for taken in sorted(numbers) if taken < number]
    notebook = nbformat.read(lesson, as_version=4)
    part = part_of(root / f"notebooks/{before[-1]}.ipynb") if before else PARTS[0]
    notebook.metadata["course"] = {"part": part}
    lesson.write_text(nbformat.writes(notebook) + "\n", encoding="utf-8")
    return list(texts)


def title(name: str) -> str:
    """The first title of a lesson: verb_object -> Verb object."""
    return name.replace("_", " ").capitalize()


def main(arguments: list[str] | None = None) -> int:
    """Begin the lesson and say what to do next; return 1, after a sentence, for an unfit name."""
    parser = argparse.ArgumentParser(prog="make new-lesson", description=__doc__.splitlines()[0])
    parser.add_argument("name", help="a verb and an object, such as share_memory_pools")
    parser.add_argument("number", type=int, help="a free number, its place in the reading order")
    options = parser.parse_args(arguments)
    try:
        paths = new_lesson(options.name, options.number)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    files = [str(short(path)) for path in paths]
    part = part_of(paths[0])
    print(NEXT.format(files=", ".join(files), lesson=files[0], name=options.name, part=part))
    return 0


if __name__ == "__main__":
    sys.exit(main())
