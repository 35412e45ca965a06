"""Where the course's files are, and what its lessons are called."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = ROOT / "notebooks"
TRACES = ROOT / "traces"
MY_LESSONS = ROOT / "my_lessons"  # the learner's copy, made by `make lab`; git ignores it
REFERENCE_GPU = "nvidia-h200"
CONFORMANCE = TRACES / REFERENCE_GPU / "conformance.json"  # how programs end there


class LessonError(RuntimeError):
    """What keeps a lesson from running, in one sentence: notebooks show it without a traceback."""

    def _render_traceback_(self) -> list[str]:
        return [f"{type(self).__name__}: {self}"]


def lesson_name(path: Path) -> str:
    """notebooks/NN_verb_object.ipynb -> verb_object; solutions/ stays in front."""
    relative = Path(path).resolve().relative_to(NOTEBOOKS)
    return str(relative.with_name(re.sub(r"^\d+_", "", relative.stem)))


def short(path: Path) -> Path:
    """The path as seen from the project, if it lies in it."""
    return path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
