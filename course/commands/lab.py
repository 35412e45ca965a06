"""Open your own copy of the lessons in JupyterLab:
python -m course.commands.lab [JupyterLab's options]

The copy lies in my_lessons/, which git ignores, so
that an update of the course never meets your notes.
"""

import hashlib
import json
import os
import re
import shutil
import sys
from pathlib import Path

from course.files import SavingError, replacing
from course.lessons import former_names, unnumbered
from course.paths import MY_LESSONS, NOTEBOOKS, ROOT, short
from course.progress import write_page
from course.set_up import NO_ROOT, REFUSED, hold_lock

# what tells Python's webbrowser of a browser; without them it would take over the terminal with w3m
DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
FOLLOWED = "Lessons have new numbers or names: your copies and your solved exercises followed."
# metadata that JupyterLab writes unasked
JUPYTERS_OWN = {"kernelspec", "language_info", "execution", "trusted"}


def update(course: Path = NOTEBOOKS, copy: Path = MY_LESSONS) -> list[str]:
    """Bring the copy up to the course; return a sentence for each thing that the learner should
    know.

    A lesson that is missing is copied. One that the learner has neither edited nor run is replaced
    when the course's has changed, and goes when the course has it no more. All others stay as they
    are, but for their number, which follows the course's. Raises SavingError if the disk refuses
    it.
    """
    origins = _read_origins(copy / ".origins.json")
    moved, said = follow_moved_lessons(course, copy, origins)
    for name in notebook_paths(course):
        path = course / name
        mine = copy / name
        new = learners_content_hash(course / name)
        have = learners_content_hash(mine) if mine.is_file() else None
        if mine.exists() and have is None:
            said.append(f"{short(mine)} is no file: rename it to get the lesson.")
        elif have in (None, new, origins.get(name)):
            if have != new:
                with replacing(mine) as file:
                    shutil.copyfile(path, file)
            origins[name] = new
        elif origins.get(name) != new:
            there = (
                f"There is a new {short(path)}, but {short(mine)} is yours: rename it to get both."
            )
            if name in moved:
                there = f"{short(moved[name])} is yours: it is now {short(mine)}. {there}"
            said.append(there)
    with replacing(copy / ".origins.json") as file:
        file.write_text(json.dumps(origins, indent=1))
    return said


def follow_moved_lessons(
    course: Path, copy: Path, origins: dict
) -> tuple[dict[str, Path], list[str]]:
    """Let copies of lessons that the course has moved follow, and bring origins up to that.

    Returns where the learner's own ones were, by new name, and what there is to tell
    about the others. An untouched copy goes: update makes it anew under its new name.
    """
    now = {_unnumbered(name): name for name in notebook_paths(course)}
    former = former_names(course)
    moved = {}
    untouched = 0
    said = []
    for old in [name for name in origins if not (course / name).exists()]:
        origin = origins.pop(old)
        name = former.get(Path(old).stem, unnumbered(Path(old).stem))
        new = now.get(str(Path(old).with_stem(name)))
        mine = copy / old
        if not mine.is_file():
            continue
        if learners_content_hash(mine) == origin:
            mine.unlink()
            untouched += new is not None
        elif new and not (copy / new).exists():
            mine.rename(copy / new)
            origins[new], moved[new] = origin, mine
        else:
            said.append(f"The course has no {old} any more: {short(mine)} is yours and stays.")
    if untouched or moved:
        said.insert(0, FOLLOWED)
    return moved, said


def notebook_paths(course: Path) -> list[str]:
    """The course's notebooks, as paths in its folder."""
    paths = [*course.glob("*.ipynb"), *course.glob("solutions/*.ipynb")]
    return [str(path.relative_to(course)) for path in sorted(paths)]


def learners_content_hash(path: Path) -> str:
    """A short hash of what a learner can change in a notebook; what JupyterLab adds by itself
    counts for nothing.
    """
    data = path.read_bytes()
    try:
        notebook = json.loads(data)
        cells = notebook["cells"]
        seen = [(one["cell_type"], "".join(one["source"]), one.get("outputs", [])) for one in cells]
        own = [_learners_metadata(notebook), *map(_learners_metadata, cells)]
        data = json.dumps([seen, own] if any(own) else seen).encode()
    except (ValueError, LookupError, TypeError, AttributeError):
        pass  # no notebook: every byte counts
    return hashlib.sha256(data).hexdigest()[:12]


def _learners_metadata(of: dict) -> dict:
    """The learner's own metadata and attachments of a cell, or of the notebook."""
    own = {key: value for key, value in of.get("metadata", {}).items() if key not in JUPYTERS_OWN}
    return own | ({"attachments": of["attachments"]} if of.get("attachments") else {})


def _unnumbered(name: str) -> str:
    """What of a notebook's name stays when lessons are renumbered."""
    return re.sub(r"(^|/)\d+_", r"\1", name)


def _read_origins(origins: Path) -> dict[str, str]:
    """What each copied lesson was copied from, by name; without it, what differs counts as the
    learner's.
    """
    try:
        return dict(json.loads(origins.read_text()))
    except (OSError, ValueError, TypeError):
        return {}


def default_jupyter_options(options: list[str]) -> list[str]:
    """JupyterLab's options for root, and for a machine without a display, unless they are given.

    Root is let in, and listens on this machine alone, whatever a settings file says.
    """
    found = []
    if os.geteuid() == 0:
        found += ["--allow-root", "--ip=localhost"]
    if sys.platform == "linux" and not any(os.environ.get(name) for name in DISPLAYS):
        found.append("--no-browser")
    given = {option.partition("=")[0].replace("ServerApp.", "") for option in options}
    given = {option.replace("_", "-") for option in given}
    return [option for option in found if option.partition("=")[0] not in given]


def main(options: list[str]) -> None:
    """Update the copy and become JupyterLab; exits with a sentence where one of them cannot be."""
    if os.geteuid() == 0 and os.environ.get(NO_ROOT):
        sys.exit(REFUSED)
    try:
        with hold_lock():  # another start may be copying the same lessons
            for sentence in update():
                print(sentence, flush=True)
            write_page()
    except SavingError as error:
        sys.exit(str(error))
    except OSError as error:
        sys.exit(f"{error.filename} could not be read: {error.strerror}.")
    print("Starting JupyterLab; Ctrl-C here ends it.", flush=True)
    ours = {"JUPYTER_CONFIG_PATH": ROOT / "jupyter", "JUPYTER_PATH": ROOT / "jupyter/data"}
    first = {}  # our settings and our kernel come before others
    for name, path in ours.items():
        first[name] = os.pathsep.join(filter(None, [str(path), os.environ.get(name)]))
    looks = {"static_custom_path": [str(ROOT / "jupyter/custom")]}  # where custom.css is
    settings = [f"--ServerApp.root_dir={ROOT}", f"--ServerApp.tornado_settings={looks}"]
    options = [*default_jupyter_options(options), *options]
    command = [sys.executable, "-m", "jupyterlab", *settings, *options]
    os.execve(sys.executable, command, os.environ | first)


if __name__ == "__main__":
    main(sys.argv[1:])
