"""Open your own copy of the lessons in JupyterLab:  python -m course.lab [JupyterLab's options]

The copy lies in my_lessons/, which git ignores, so that an update of the course never meets your notes.
"""

import hashlib
import json
import os
import shutil
import sys

from course.files import SavingError, replacing
from course.notebooks import MY_LESSONS, NOTEBOOKS, ROOT, short


def update(course=NOTEBOOKS, copy=MY_LESSONS):
    """Bring the copy up to the course; return a sentence for each lesson that the learner has to decide on.

    A lesson that is missing is copied. One that the learner has neither edited nor run is replaced
    when the course's has changed. All others stay as they are. Raises SavingError if the disk refuses it.
    """
    origins, undecided = _read(copy / ".origins.json"), []
    for path in sorted([*course.glob("*.ipynb"), *course.glob("solutions/*.ipynb")]):
        name = str(path.relative_to(course))
        mine, new = copy / name, content(path)
        have = content(mine) if mine.exists() else None
        if have in (None, new, origins.get(name)):
            if have != new:
                with replacing(mine) as file:
                    shutil.copyfile(path, file)
            origins[name] = new
        elif origins.get(name) != new:
            undecided.append(f"There is a new {short(path)}, but {short(mine)} is yours: rename it to get both.")
    with replacing(copy / ".origins.json") as file:
        file.write_text(json.dumps(origins, indent=1))
    return undecided


def content(path):
    """A short hash of a notebook's sources and outputs; JupyterLab's metadata count for nothing."""
    data = path.read_bytes()
    try:
        cells = json.loads(data)["cells"]
        seen = [(cell["cell_type"], "".join(cell["source"]), cell.get("outputs", [])) for cell in cells]
        data = json.dumps(seen).encode()
    except (ValueError, LookupError, TypeError, AttributeError):
        pass  # no notebook: every byte counts
    return hashlib.sha256(data).hexdigest()[:12]


def _read(origins):
    """What each copied lesson was copied from, by name; without it, what differs counts as the learner's."""
    try:
        return dict(json.loads(origins.read_text()))
    except (OSError, ValueError, TypeError):
        return {}


def main(options):
    """Update the copy and become JupyterLab; exits with a sentence if the copy cannot be written."""
    try:
        for sentence in update():
            print(sentence, flush=True)
    except SavingError as error:
        sys.exit(str(error))
    settings = os.pathsep.join(filter(None, [str(ROOT / "jupyter"), os.environ.get("JUPYTER_CONFIG_PATH")]))
    command = [sys.executable, "-m", "jupyterlab", f"--ServerApp.root_dir={ROOT}", *options]
    os.execve(sys.executable, command, os.environ | {"JUPYTER_CONFIG_PATH": settings})


if __name__ == "__main__":
    main(sys.argv[1:])
