"""Begin a lesson:  python -m course.commands.new_lesson VERB_OBJECT

Writes its notebook, the notebook of its solutions and the scenarios of its exercises, from
lesson_template/: a small lesson that passes the tests of form, to be rewritten piece by piece.
"""

import argparse
import re
import sys
from pathlib import Path

from course.commands.renumber import renamed, stems
from course.paths import ROOT, short

TEMPLATE = Path(__file__).with_name("lesson_template")
NAME = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)+")
NEXT = """Written: {files}.

Next:
1. Write the lesson in {lesson}: CONTRIBUTING.md says what form it has. It comes last;
   make renumber ARGS="{name} 12" moves it.
2. make test ARGS="-k {name}" says what is missing.
3. make record ARGS="{name}" on a machine with a CUDA GPU.
4. make readme writes its minutes and its row in the README. Add it to a row of the README's table
   of readers, and its terms to docs/glossary.md.
"""


def new_lesson(name: str, root: Path = ROOT) -> list[Path]:
    """Write a lesson's files, at the next number, and return them.

    Raises ValueError for a name that is none, or is taken already.
    """
    if not NAME.fullmatch(name):
        raise ValueError(
            f"{name!r} is no name of a lesson: a verb and an object, such as share_memory_pools."
        )
    if name in stems(root):
        raise ValueError(f"There is a lesson {name} already: notebooks/{stems(root)[name]}.ipynb.")
    files = stems(root) | {name: f"{len(stems(root)):02}_{name}"}
    texts = {
        root / f"notebooks/{files[name]}.ipynb": "lesson.ipynb",
        root / f"notebooks/solutions/{files[name]}.ipynb": "solutions.ipynb",
        root / f"course/scenarios/{name}.py": "scenario.py",
    }
    if found := [path for path in texts if path.exists()]:
        raise ValueError(f"{short(found[0])} is there already: move it away first.")
    for path, template in texts.items():
        text = (TEMPLATE / template).read_text(encoding="utf-8")
        text = text.replace("verb_object", name).replace("Verb object", title(name))
        path.write_text(renamed(text, files), encoding="utf-8")
    return list(texts)


def title(name: str) -> str:
    """The first title of a lesson: verb_object -> Verb object."""
    return name.replace("_", " ").capitalize()


def main(arguments: list[str] | None = None) -> int:
    """Begin the lesson and say what to do next; return 1, after a sentence, for an unfit name."""
    parser = argparse.ArgumentParser(prog="make new-lesson", description=__doc__.splitlines()[0])
    parser.add_argument(
        "name", help="a verb and an object, such as share_memory_pools: NAME=... of make"
    )
    name = parser.parse_args(arguments).name
    try:
        files = [str(short(path)) for path in new_lesson(name)]
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    print(NEXT.format(files=", ".join(files), lesson=files[0], name=name))
    return 0


if __name__ == "__main__":
    sys.exit(main())
