"""Play lessons as a reader without a GPU does, and keep what their cells show: for the site, the
pages of read/, and the tests.
"""

import atexit
import multiprocessing
import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import chdir, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import nbformat
import pandas as pd
from IPython.core.display_functions import publish_display_data
from IPython.core.displayhook import DisplayHook
from IPython.core.interactiveshell import InteractiveShell
from IPython.core.pylabtools import print_figure
from IPython.utils.capture import capture_output
from matplotlib import pyplot as plt
from traitlets.config import Config

from course.display import title_text
from course.lesson import PLAY
from course.paths import NOTEBOOKS, REFERENCE_GPU
from course.recordings.cells import checks_in, handed_on

PRELOADED = [  # what most lessons import, once for all their processes
    "course.player",
    "exercises",
    "helpers.charts",
    "helpers.profiling",
    "helpers.trace",
    "torch._dynamo",
]
DPI = 110  # of charts
FROM = "*recorded on "  # begins the line above a played cell, which a page says once


def play_lesson(path: Path, gpu: str = REFERENCE_GPU) -> nbformat.NotebookNode:
    """A lesson with what its cells show on the recording of a GPU, the name of a folder of traces/.

    The cell that opens the lesson shows nothing, and the checks of exercises are not run. Raises
    what a cell raises.
    """
    notebook = nbformat.read(path, as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    with playing(gpu) as shell:
        for cell in code:
            cell.outputs = []
            if not checks_in(cell.source):
                with capture_output() as shown:
                    shell.run_cell(cell.source, store_history=True).raise_error()
                # what libraries log, where it is recorded
                logs = handed_on(cell.source) is not None
                cell.outputs = list(_outputs(shown, ("stdout", "stderr") if logs else ("stdout",)))
    code[0].outputs = []
    return notebook


def play_in_parallel(paths: Iterable[Path]) -> dict[Path, nbformat.NotebookNode]:
    """Several lessons, each in a process of its own, as many at once as there are cores."""
    own = multiprocessing.get_context("forkserver")
    own.set_forkserver_preload(PRELOADED)
    paths, cores = list(paths), len(os.sched_getaffinity(0))
    with ProcessPoolExecutor(cores, mp_context=own, max_tasks_per_child=1) as pool:
        return dict(zip(paths, pool.map(play_lesson, paths), strict=True))


class _PromptlessDisplayHook(DisplayHook):
    """Shows the value of a cell as display() does, without Out[1]:."""

    def write_output_prompt(self) -> None:
        """Write none."""

    def write_format_data(self, format_dict: dict, md_dict: dict | None = None) -> None:
        """Show the value."""
        publish_display_data(format_dict, md_dict)


class _Shell(InteractiveShell):
    displayhook_class = _PromptlessDisplayHook


@contextmanager
def playing(gpu: str) -> Iterator[InteractiveShell]:
    """In the block there is a new IPython, in which lessons play recordings even beside a GPU."""
    InteractiveShell.clear_instance()
    shell = _Shell.instance(config=Config(HistoryManager={"enabled": False}))
    shell.showtraceback = lambda *_, **__: None  # type: ignore[method-assign]
    plt.switch_backend("agg")
    try:
        with (
            patch.dict(os.environ, {PLAY: gpu}),
            chdir(NOTEBOOKS),
            pd.option_context("display.max_columns", 20),  # as in notebooks
        ):
            yield shell
    finally:
        plt.close("all")
        atexit.unregister(shell.atexit_operations)
        _Shell.clear_instance()


def _outputs(shown: Any, streams: Iterable[str]) -> Iterator[nbformat.NotebookNode]:
    """What a cell showed: text, tables and the like, then its charts."""
    for name in streams:
        if text := getattr(shown, name):
            yield nbformat.v4.new_output("stream", name=name, text=text)
    for output in shown.outputs:
        if not output.data.get("text/markdown", "").startswith(FROM):
            yield nbformat.v4.new_output("display_data", output.data)
    for number in plt.get_fignums():
        yield _chart_output(plt.figure(number))
    plt.close("all")


def _chart_output(figure: Any) -> nbformat.NotebookNode:
    """A chart as PNG, with the text for those who do not see it as its plain text."""
    axes = [text for one in figure.axes for text in (one.get_xlabel(), one.get_ylabel()) if text]
    said = [title_text(figure).removesuffix(".")]
    if axes:
        said.append(f"Axes: {'; '.join(dict.fromkeys(axes))}")
    data = {
        "image/png": print_figure(figure, base64=True, dpi=DPI, metadata={"Software": None}),
        "text/plain": " ".join(". ".join(said).split()),
    }
    return nbformat.v4.new_output("display_data", data)
