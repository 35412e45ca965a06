"""%%gpu cells: run live where there is a CUDA GPU, play the lesson's recording where there is none.

A recording, traces/<gpu>/<lesson>.json, is what the %%gpu cells gave on some GPU.
"""

import ast
import os
import re
import sys
import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import pandas as pd
from IPython import get_ipython
from IPython.display import Markdown, clear_output, display

from course import ranks
from course.display import describe_charts, round_numbers, show_error
from course.lessons import present_name
from course.machine import NeedsMore, gpu_name, has_too_few_gpus, missing, recording_notice
from course.paths import REFERENCE_GPU, TRACES, LessonError
from course.progress import in_copy, lesson_ending
from course.recordings.cells import handed_on, tree
from course.recordings.kernel_history import RUN_ABOVE, History
from course.recordings.recording import Recording, find_recording
from course.recordings.statements import IMPORT, ParsedCell, parsed
from course.recordings.values import decode

IMPORTED_BY = {r"\blesson\(": "torch", r"\b(check_capture|cpu_graphs)\(": "torch._dynamo"}
RECORD_TO = "CUDA_GRAPHS_RECORD_TO"  # the recorder sets it to the folder for a lesson's traces
RECORDED_ON = "CUDA_GRAPHS_RECORDED_ON"  # the reader may set it to a folder of traces/
PLAY = "CUDA_GRAPHS_PLAY"  # the player sets it to the folder from which it plays, even beside a GPU
_open: "LessonSession | None" = None
_history: History | None = None


def lesson(
    name: str,
    live: bool | None = None,
    gpus: int = 1,
    needs: Sequence[str] = (),
    recorded_on: str = "",
    share_gpu: bool = False,
) -> Markdown:
    """Open the lesson name (its file name without number and suffix): %%gpu cells work from here
    on.

    They run live where there are that many CUDA GPUs and the packages in needs (see missing), else
    they play the recording; live=False plays it even there. recorded_on: the folder of traces/
    whose recording it plays, by default what CUDA_GRAPHS_RECORDED_ON says. share_gpu: one GPU will
    do, too. Raises RecordingError if it is needed and missing or damaged.
    """
    global _open
    name = present_name(name)
    playing = PLAY in os.environ
    gpu = None if playing or live is False else gpu_name()
    lacking = [] if playing else missing(gpus, needs, share_gpu)
    if RECORD_TO in os.environ and lacking:
        raise NeedsMore(f"This lesson needs {' and '.join(lacking)}.")
    if live is None:
        live = not lacking and (gpu is not None or RECORD_TO in os.environ)
    folder = os.environ.get(PLAY) or recorded_on or os.environ.get(RECORDED_ON, REFERENCE_GPU)
    opened = LessonSession(name, live, folder)
    shell = get_ipython()
    load_ipython_extension(shell)
    describe_charts(shell)
    _silence_warnings()
    _open = None  # also where the recording is missing
    about = {} if opened.live else opened.recording.about
    _open = opened
    if _history:
        _history.set_watching(playing=not opened.live)
    if opened.live:
        ranks.start_watcher(shell, ranks.LIMIT if has_too_few_gpus(gpus) else 0)
        return Markdown(f"**Live**: `%%gpu` cells run on this machine's {gpu}.")
    return Markdown(recording_notice(about, gpus, lacking))


def _silence_warnings() -> None:
    """Keep back warnings that say nothing of the lesson.

    That of graphs whose backward pass has a stream of its own, as it must, is shown in the gallery,
    where it matters.
    """
    import torch  # not before a lesson is opened: a kernel starts sooner

    for message in ("IProgress not found", "TRITON_DEFAULT_FP_FUSION is unset"):
        warnings.filterwarnings("ignore", message)
    torch.autograd.graph.set_warn_on_accumulate_grad_stream_mismatch(False)


def load_ipython_extension(shell: Any) -> None:
    """Let the shell know %%gpu cells, follow what runs, and round numbers; the kernels of
    `make lab` do so as they start.
    """
    global _history
    if _history is None or _history.shell is not shell:
        _history = History(shell)
        shell.events.register("pre_run_cell", announce_import)
        shell.events.register("post_run_cell", announce_next)
    shell.set_custom_exc((KeyboardInterrupt, NameError), show_error)
    round_numbers(shell)
    if _transform not in shell.input_transformers_cleanup:
        shell.input_transformers_cleanup.append(_transform)


def recorded(value: str) -> Any:
    """The value of that name from the open lesson's recording, live or not: to compare machines.

    While a recording is being made it is the value itself.
    """
    if RECORD_TO in os.environ:
        return get_ipython().user_ns[value]
    return current().recording.value(value)


def trace_file(name: str) -> Path:
    """Path of the open lesson's profiler trace name:
    the recorded one without a GPU, else one's own.
    """
    opened = current()
    return opened.trace_folder / f"{name}.json.gz" if opened.live else opened.recording.trace(name)


def current() -> "LessonSession":
    """The open lesson. Raises LessonError before lesson() was called."""
    if _open is None:
        run = 'run the cell lesson("...") at the top of the notebook first.'
        raise LessonError(f"No lesson is open: {run} {RUN_ABOVE}")
    return _open


@dataclass
class LessonSession:
    """A lesson's name, whether it runs live, where its traces are, and its recording on the GPU of
    that name.
    """

    name: str
    live: bool
    recorded_on: str = REFERENCE_GPU

    @cached_property
    def trace_folder(self) -> Path:
        """Where a live run's traces lie. The recorder names a folder of its own."""
        return Path(os.environ.get(RECORD_TO) or TRACES / "local" / self.name)

    @cached_property
    def recording(self) -> Recording:
        """The recording that is played."""
        return find_recording(self.name, self.recorded_on, TRACES)


def _transform(lines: list[str]) -> list[str]:
    """IPython input transformer: drop the %%gpu line, or put the recording in the cell's place."""
    if handed_on("".join(lines[:1])) is None:
        return lines
    if not current().live:
        cell = parsed("".join(lines))
        get_ipython().push({"_play_recording": partial(play_cell, cell)}, interactive=False)
        return ["_play_recording()\n"]
    # an empty first line keeps the line numbers of tracebacks; another cell magic must come first
    return lines[1:] if lines[1:2] and lines[1].startswith("%%") else ["\n", *lines[1:]]


def play_cell(cell: ParsedCell) -> None:
    """What a %%gpu cell without a GPU runs instead: show its recording, bind its names.

    These are the names in its first line, with the recorded values, and what it imports.

    Raises NeedsGPU if the recording was made by other code than was run here.
    """
    recording = current().recording
    assert _history is not None, "lesson() has opened it"
    recorded_cell, other_tools = _history.find_playable_cell(cell, recording)
    # a cell that only defines something shows nothing, as live
    if recorded_cell.outputs or other_tools:
        about = recording.about
        line = f"recorded on {about['gpu']}, torch {about['torch']}, {about['date']}"
        for tool, (then, now) in other_tools.items():
            line += f"; with {tool} {then}, and this copy differs: {now}"
        display(Markdown(f"*{line}*"))
    values = {name: decode(name, recorded_cell.values[name]) for name in cell.hands_on or ()}
    for output in recorded_cell.outputs:
        show_output(output)
    get_ipython().push(run_imports(cell) | values)


def show_output(output: dict[str, Any]) -> None:
    """Show one recorded output: lines of text, or a table."""
    ((kind, content),) = output.items()
    if kind == "table":
        with pd.option_context("display.max_colwidth", None):
            display(decode("a table", content))
    elif kind == "text":
        display({"text/plain": "".join(content)}, raw=True)
    else:
        print("".join(content), end="", file=getattr(sys, kind))


def run_imports(cell: ParsedCell) -> dict[str, Any]:
    """What the imports at the top level of a %%gpu cell bind; a missing package binds nothing.

    A played cell runs them, so that the cells after it find the names which they would find live.
    """
    names: dict[str, Any] = {}
    for node in tree(cell.source).body:
        if isinstance(node, IMPORT):
            with suppress(ImportError):
                exec(compile(ast.Module([node], []), "<imports of a %%gpu cell>", "exec"), names)
    names.pop("__builtins__", None)
    return names


def announce_import(info: Any) -> None:
    """Before a cell that will import torch, or what the stand-in needs of it: say so."""
    for call, module in IMPORTED_BY.items():
        if in_copy() and module not in sys.modules and re.search(call, info.raw_cell or ""):
            display(Markdown(f"Importing {module} ..."))
            clear_output(wait=True)  # once there is something else to show


def announce_next(result: Any) -> None:
    """After a lesson's last cell, which frees the GPU's memory: say what comes next."""
    source = result.info.raw_cell or ""
    last = handed_on(source) is not None and source.rstrip().endswith("free_gpu_memory()")
    if last and result.success and _open and (text := lesson_ending(_open.name)):
        display(Markdown(text))
