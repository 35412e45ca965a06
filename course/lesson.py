"""%%gpu cells: run live where there is a CUDA GPU, play the lesson's recording where there is none.

A recording is the lesson as executed on some GPU: traces/<gpu>/<lesson>.ipynb. The values that a
cell hands on ride in it as one more MIME type of the cell's output.
"""

import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from IPython import get_ipython
from IPython.display import Markdown

from course.progress import note
from course.recording import REFERENCE_GPU, TRACES, Recording, RecordingError, handed_on, short

RECORD_TO = "CUDA_GRAPHS_RECORD_TO"  # the recorder sets it to the folder for a lesson's traces

_open = None


def lesson(name, live=None):
    """Open the lesson name (its file name without number and suffix): %%gpu cells work from here on.

    Shows whether they will run live or play a recording. live=False plays the recording even where
    there is a CUDA GPU. Raises RecordingError if the recording is needed and missing or damaged.
    """
    global _open
    gpu = None if live is False else _gpu_name()
    _open = Lesson(name, live=gpu is not None if live is None else live)
    shell = get_ipython()
    if _transform not in shell.input_transformers_cleanup:
        shell.input_transformers_cleanup.append(_transform)
    shell.set_custom_exc((KeyboardInterrupt,), _interrupted)
    if _open.live:
        return Markdown(f"**Live**: `%%gpu` cells run on this machine's {gpu}." + note(name))
    about = _open.recording.about
    return Markdown(
        f"**Recorded**: `%%gpu` cells show what ran on an {about['gpu']} "
        f"(torch {about['torch']}, {about['date']}). Everything else runs for real." + note(name)
    )


def _interrupted(shell, kind, error, traceback, tb_offset=None):
    """What a cell shows when the learner interrupts it: a sentence instead of a traceback."""
    shell._showtraceback(kind, error, ["Interrupted: what this cell makes is missing or old, so run it again."])


def _gpu_name():
    import torch  # here, for playing a recording needs no torch

    return torch.cuda.get_device_name() if torch.cuda.is_available() else None


def recorded(value):
    """The value of that name from the open lesson's recording, live or not: to compare machines.

    While a recording is being made it is the value itself.
    """
    if RECORD_TO in os.environ:
        return get_ipython().user_ns[value]
    return current().recording.value(value)


def trace_file(name):
    """Path of the open lesson's profiler trace name: the recorded one without a GPU, else one's own."""
    folder = current().folder
    path = folder / f"{name}.json.gz"
    if not current().live and not path.exists():
        raise RecordingError(f"There is no recorded trace {short(path)}: restore it with git.")
    return path


def current():
    """The open Lesson. Raises RuntimeError before lesson() was called."""
    if _open is None:
        raise RuntimeError('No lesson is open: run the cell lesson("...") at the top of the notebook first.')
    return _open


@dataclass
class Lesson:
    """A lesson's name, whether it runs live, and where its traces and its recording are."""

    name: str
    live: bool

    @cached_property
    def folder(self):
        """Where this run's traces lie. The recorder names a folder of its own."""
        if RECORD_TO in os.environ:
            return Path(os.environ[RECORD_TO])
        return TRACES / ("local" if self.live else self.recording.path.parent.name) / self.name

    @cached_property
    def recording(self):
        gpu = os.environ.get("CUDA_GRAPHS_RECORDED_ON", REFERENCE_GPU)
        return Recording.read(TRACES / gpu / f"{self.name}.ipynb")


def _transform(lines):
    """IPython input transformer: drop the %%gpu line, or put the recording in the cell's place."""
    if handed_on("".join(lines[:1])) is None:
        return lines
    if not current().live:
        return [f"__import__('course.lesson').recording.play({''.join(lines)!r})\n"]
    # an empty first line keeps the line numbers of tracebacks; another cell magic must come first
    return lines[1:] if lines[1:2] and lines[1].startswith("%%") else ["\n", *lines[1:]]


def play(source):
    """What a %%gpu cell without a GPU runs instead: show its recording and bind the recorded names."""
    get_ipython().push(current().recording.play(source))
