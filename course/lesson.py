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
from html import escape
from pathlib import Path
from traceback import walk_tb
from typing import Any

import matplotlib.pyplot as plt
import pandas as pd
from IPython import get_ipython
from IPython.core.pylabtools import print_figure
from IPython.display import Markdown, clear_output, display
from matplotlib.figure import Figure

from course import ranks
from course.lessons import present_name
from course.machine import NeedsMore, gpu_name, missing, played, too_few
from course.paths import REFERENCE_GPU, TRACES, LessonError
from course.progress import ending, in_copy
from course.recordings.cells import handed_on, tree
from course.recordings.kernel_history import RUN_ABOVE, History
from course.recordings.recording import Recording, recorded_lesson
from course.recordings.statements import IMPORT, Cell, parsed
from course.recordings.values import decode

RUN_FIRST = (
    "If a cell above defines it, run that cell first; after a restart of the kernel, all of them. "
    + RUN_ABOVE
)
INTERRUPTED = "Interrupted: what this cell makes is missing or old, so run it again."
IMPORTED_BY = {r"\blesson\(": "torch", r"\b(check_capture|cpu_graphs)\(": "torch._dynamo"}
RECORD_TO = "CUDA_GRAPHS_RECORD_TO"  # the recorder sets it to the folder for a lesson's traces
_open: "Lesson | None" = None
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
    gpu = None if live is False else gpu_name()
    recording = RECORD_TO in os.environ
    lacking = missing(gpus, needs, share_gpu)
    if recording and lacking:
        raise NeedsMore(f"This lesson needs {' and '.join(lacking)}.")
    live = not lacking and (gpu is not None or recording) if live is None else live
    opened = Lesson(
        name, live, recorded_on or os.environ.get("CUDA_GRAPHS_RECORDED_ON", REFERENCE_GPU)
    )
    shell = get_ipython()
    load_ipython_extension(shell)
    describe_charts(shell)
    _quiet()
    _open = None  # also where the recording is missing
    about = {} if opened.live else opened.recording.about
    _open = opened
    if opened.live:
        ranks.watch(shell, ranks.LIMIT if too_few(gpus) else 0)
        return Markdown(f"**Live**: `%%gpu` cells run on this machine's {gpu}.")
    return Markdown(played(about, gpus, lacking))


def _quiet() -> None:
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
        shell.events.register("pre_run_cell", wait)
        shell.events.register("post_run_cell", end)
    shell.set_custom_exc((KeyboardInterrupt, NameError), told)
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
    return (
        current().folder / f"{name}.json.gz" if current().live else current().recording.trace(name)
    )


def current() -> "Lesson":
    """The open Lesson. Raises LessonError before lesson() was called."""
    if _open is None:
        raise LessonError(
            'No lesson is open: run the cell lesson("...") at the top of the notebook first. '
            f"{RUN_ABOVE}"
        )
    return _open


@dataclass
class Lesson:
    """A lesson's name, whether it runs live, where its traces are, and its recording on the GPU of
    that name.
    """

    name: str
    live: bool
    recorded_on: str = REFERENCE_GPU

    @cached_property
    def folder(self) -> Path:
        """Where a live run's traces lie. The recorder names a folder of its own."""
        return Path(os.environ.get(RECORD_TO) or TRACES / "local" / self.name)

    @cached_property
    def recording(self) -> Recording:
        """The recording that is played."""
        return recorded_lesson(self.name, self.recorded_on, TRACES)


def _transform(lines: list[str]) -> list[str]:
    """IPython input transformer: drop the %%gpu line, or put the recording in the cell's place."""
    if handed_on("".join(lines[:1])) is None:
        return lines
    if not current().live:
        cell = parsed("".join(lines))
        get_ipython().push({"_play_recording": partial(play, cell)}, interactive=False)
        return ["_play_recording()\n"]
    # an empty first line keeps the line numbers of tracebacks; another cell magic must come first
    return lines[1:] if lines[1:2] and lines[1].startswith("%%") else ["\n", *lines[1:]]


def play(cell: Cell) -> None:
    """What a %%gpu cell without a GPU runs instead: show its recording, bind its names.

    These are the names in its first line, with the recorded values, and what it imports.

    Raises NeedsGPU if the recording was made by other code than was run here.
    """
    recording = current().recording
    assert _history is not None, "lesson() has opened it"
    recorded_cell, other_tools = _history.allows(cell, recording)
    if (
        recorded_cell.outputs or other_tools
    ):  # one that only defines something shows nothing, as live
        about = recording.about
        line = f"recorded on {about['gpu']}, torch {about['torch']}, {about['date']}"
        for tool, (then, now) in other_tools.items():
            line += f"; with {tool} {then}, and this copy differs: {now}"
        display(Markdown(f"*{line}*"))
    values = {name: decode(name, recorded_cell.values[name]) for name in cell.hands_on or ()}
    for output in recorded_cell.outputs:
        show(output)
    get_ipython().push(imported(cell) | values)


def show(output: dict[str, Any]) -> None:
    """Show one recorded output: lines of text, or a table."""
    ((kind, content),) = output.items()
    if kind == "table":
        with pd.option_context("display.max_colwidth", None):
            display(decode("a table", content))
    elif kind == "text":
        display({"text/plain": "".join(content)}, raw=True)
    else:
        print("".join(content), end="", file=getattr(sys, kind))


def imported(cell: Cell) -> dict[str, Any]:
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


def round_numbers(shell: Any) -> None:
    """Let an IPython shell show floats, and pandas those in tables, to five digits; the values stay
    what they are.
    """
    pd.options.display.float_format = five_digits
    plain = shell.display_formatter.formatters["text/plain"]
    plain.for_type(
        float,
        lambda value, printer, _: printer.text(repr(value) if whole(value) else five_digits(value)),
    )


def describe_charts(shell: Any) -> None:
    """Let an IPython shell give charts a text for screen readers: their title."""
    plt.switch_backend(plt.get_backend())  # now: as it starts, it drops what shows figures
    html = shell.display_formatter.formatters["text/html"]
    html.for_type(Figure, described)


def described(figure: Figure) -> str:
    """A figure as an HTML image whose text is what its titles say."""
    png = print_figure(figure, fmt="png", base64=True)
    said = escape(titles(figure) or "Chart without a title")
    return f'<img class="chart" alt="{said}" src="data:image/png;base64,{png}">'


def titles(figure: Figure) -> str:
    """What the titles of a figure and its axes say; "" if it has none."""
    found = [figure.get_suptitle(), *(axes.get_title() for axes in figure.axes)]
    return " ".join(" ".join(found).split())


def five_digits(value: float) -> str:
    """A number to five digits: 0.36374, 35.815, 3908.2, 345184, 8.2885e-08."""
    return f"{value:.0f}" if whole(value) or 1e5 <= abs(value) < 1e9 else f"{value:.5g}"


def whole(value: float) -> bool:
    """Whether it is a whole number, short enough to be written out."""
    return abs(value) < 1e9 and float(value).is_integer()


def wait(info: Any) -> None:
    """Before a cell that will import torch, or what the stand-in needs of it: say so."""
    for call, module in IMPORTED_BY.items():
        if in_copy() and module not in sys.modules and re.search(call, info.raw_cell or ""):
            display(Markdown(f"Importing {module} ..."))
            clear_output(wait=True)  # once there is something else to show


def end(result: Any) -> None:
    """After a lesson's last cell, which frees the GPU's memory: say what comes next."""
    source = result.info.raw_cell or ""
    last = handed_on(source) is not None and source.rstrip().endswith("free_gpu_memory()")
    if last and result.success and _open and (text := ending(_open.name)):
        display(Markdown(text))


def told(
    shell: Any, kind: type, error: BaseException, traceback: Any, tb_offset: int | None = None
) -> None:
    """What a cell shows when the learner interrupts it, or when it reads a name that no cell has
    bound: a sentence, the interruption's own if it has one; after a traceback, if the name is not
    the cell's own.
    """
    if not isinstance(error, NameError):
        said = [str(error) or INTERRUPTED]
    elif len(list(walk_tb(traceback))) > 2 or isinstance(error, UnboundLocalError):
        said = shell.InteractiveTB.structured_traceback(kind, error, traceback, tb_offset)
        said = said if isinstance(error, UnboundLocalError) else [*said, RUN_FIRST]
    else:
        said = [f"NameError: {error}. {RUN_FIRST}"]
    shell._showtraceback(kind, error, said)
