"""The lesson "speed", and a learner who runs its cells."""

import pytest
from IPython.utils.capture import capture_output

from course import paths
from course.commands import record
from tests.support.notebooks import write_notebook

OPENING = 'from course.lesson import lesson\n\nlesson("speed")'
FACTOR, SCALE = "factor = 2", "def scale(x):\n    return factor * x"
SPEED = "%%gpu speed\nspeed = scale(20) + 1\n'shown'"
OPTIONS, SEED = 'options = {"more": 1}', "import random\n\nrandom.seed(3)"
TWICE = (
    '%%gpu twice table\nimport pandas as pd\n\ntwice = options["more"] * 2\ntable = '
    'pd.DataFrame({"x": [twice]})\ntable'
)
TRACED = (
    "%%gpu\nfrom course.lesson import trace_file\nfrom course.recordings.values import encode\n\n"
    'trace_file("eager").write_bytes(b"trace")\nencode("speed", 1);'
)
UP_TO_SPEED = (OPENING, FACTOR, SCALE, "guess = ...", SPEED)
CELLS = (*UP_TO_SPEED, OPTIONS, SEED, TWICE, TRACED, "speed + twice")


def recorded_here(folder, name, *cells):
    """Write a lesson and record it by the recorder, as if this machine had a
    GPU; return the folder, which then holds notebooks/ and traces/.
    """
    about = {"gpu": "NVIDIA H200", "torch": "2.11.0", "driver": "1", "cuda": "1"}
    (folder / "notebooks").mkdir()
    path = write_notebook(folder / "notebooks" / name, *cells)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(paths, "NOTEBOOKS", folder / "notebooks")
        patch.setattr(record, "gpu_slug", lambda: "nvidia-h200")
        patch.setattr(record, "machine", lambda: about)
        record.record(path, folder / "traces")
    return folder


class Learner:
    """Runs cells as a learner does, each at a place of the notebook."""

    def __init__(self, shell):
        self.shell = shell

    def run(self, source, place=None):
        """The error that a cell shows, as a sentence without a traceback, or None."""
        with capture_output() as self.seen:
            result = self.shell.run_cell(source, cell_id=place, store_history=bool(place))
        error = result.error_before_exec or result.error_in_exec
        if error is not None and hasattr(error, "_render_traceback_"):
            assert len(error._render_traceback_()) == 1 and "\n" not in str(error)
        return error

    def run_all(self, *sources):
        return [error for source in sources if (error := self.run(source))]

    def __getitem__(self, name):
        return self.shell.user_ns[name]

    def __contains__(self, name):
        return name in self.shell.user_ns
