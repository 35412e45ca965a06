"""Record lessons on this machine's GPU:  python -m course.commands.record [lesson ...]"""

import datetime
import json
import os
import re
import shutil
import sys
import tempfile
import time
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import nbformat
import numpy as np
import pandas as pd
import torch
from IPython import get_ipython
from IPython.display import display
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

from course.files import SavingError, replacing
from course.lesson import RECORD_TO
from course.lessons import lessons
from course.machine import NEEDS_GPU, NeedsMore, machine
from course.paths import ROOT, TRACES, lesson_name
from course.recordings.cells import code_cells, handed_on
from course.recordings.recording import Recording, code_hashes, json_text, trace_hash, trace_name
from course.recordings.values import encode

VALUES = "application/vnd.cuda-graphs-course.values+json"  # from the kernel to the recorder
TABLE = "application/vnd.cuda-graphs-course.table+json"
SIMPLE = (bool, int, float, np.generic, str, type(None))
CHATTER = re.compile(r"^USDT:.* profiler_(?:start|stop)\n?", re.MULTILINE)  # torch 2.15's profiler
COLOUR = re.compile(r"\x1b\[[\d;]*m")
CELL_SECONDS = 600
PACKAGES = ("torch", "pandas", "matplotlib", "nbclient", "ipykernel")
EXTRAS = ("megatron-core", "transformer-engine", "triton")  # named where they are installed
TOOLS = (
    "from course.commands.record import encode_tables as _encode_tables, "
    "peak_memory as _peak_memory, publish_values as _publish_values"
)


def record(path: Path, traces: Path = TRACES) -> Path:
    """Run a lesson on this machine's GPU and keep what its %%gpu cells
    gave as traces/<gpu>/<lesson>.json; return that path.

    The lesson's profiler traces go into the folder beside it. The recording is replaced in one
    step, when the whole lesson has run: CellExecutionError comes through, and the earlier recording
    stays as it was.
    """
    name, folder = lesson_name(path), traces / gpu_slug()
    target = folder / f"{name}.json"
    with tempfile.TemporaryDirectory() as staging:
        about, measured = run(path, Path(staging))
        found = sorted(Path(staging).iterdir())
        staged = {file.name.removesuffix(".json.gz"): file for file in found}
        files = {trace: file.read_bytes() for trace, file in staged.items()}
        readings = {trace: trace_hash(file) for trace, file in staged.items()}
    named = {trace: trace_name(trace, content) for trace, content in files.items()}
    about |= {"traces": named, "readings": readings}
    cells = code_cells(nbformat.read(path, as_version=4))
    text = json_text(about, code_hashes(cells), without_paths(measured, name))
    # under new names, so that the earlier recording keeps its own
    for trace, content in files.items():
        with replacing(folder / name / named[trace]) as file:
            file.write_bytes(content)
    with replacing(target) as file:
        file.write_text(text, encoding="utf-8", newline="\n")
    for file in (folder / name).glob("*"):
        if file.name not in named.values():
            file.unlink()
    return target


def try_to_record(path: Path) -> tuple[bool, str]:
    """Record one lesson; returns whether that went well, and what there is to say."""
    try:
        about = Recording.read(record(path)).about
    except CellExecutionError as error:
        if error.ename == NeedsMore.__name__:
            return True, f"not recorded on this machine. {error.evalue}"
        problem = COLOUR.sub("", str(error)).strip()  # the cell, and the line in it
    except DeadKernelError:
        problem = "Its kernel died: somebody killed it, or the machine ran out of memory."
    except CellTimeoutError:
        problem = f"A cell took longer than {CELL_SECONDS} s."
    except (SavingError, TypeError) as error:
        problem = str(error)
    else:
        memory = f"peak GPU memory {about['peak_gpu_mib']} MiB"
        return True, f"recorded in {about['seconds']} s, {memory}"
    return False, f"failed, so its earlier recording stays.\n  {problem}"


def run(path: Path, staged: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Execute a lesson in a kernel of its own; return where it ran, and the values and outputs of
    each %%gpu cell.
    """
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(
        notebook,
        timeout=CELL_SECONDS,
        coalesce_streams=True,
        record_timing=False,
        shutdown_kernel="immediate",  # nothing is left to do in it
        resources={"metadata": {"path": str(Path(path).parent)}},
    )
    measured = []
    start = time.perf_counter()
    # a progress bar is no result: it would change with every recording
    with client.setup_kernel(env=os.environ | {RECORD_TO: str(staged), "TQDM_DISABLE": "1"}):
        _run_in_kernel(client, "_encode_tables()")
        for index, cell in enumerate(list(notebook.cells)):
            client.execute_cell(cell, index)
            if cell.cell_type == "code" and handed_on(cell.source) is not None:
                (values,) = _run_in_kernel(client, f"_publish_values({handed_on(cell.source)!r})")
                outputs = [kept for one in cell.outputs if (kept := recorded_output(one))]
                measured.append({"values": values.data[VALUES], "outputs": outputs})
        memory = _run_in_kernel(client, "_peak_memory()")[0].data["text/plain"]
    about = provenance() | {"seconds": round(time.perf_counter() - start, 1)}
    return about | {"peak_gpu_mib": int(memory)}, measured


def recorded_output(output: nbformat.NotebookNode) -> dict[str, Any] | None:
    """An output of a %%gpu cell as a recording holds it; None for what the profiler prints of
    itself. Raises TypeError for what is neither text nor a table.
    """
    if output.output_type == "stream":
        lines = CHATTER.sub("", output.text).splitlines(keepends=True)
        return {output.name: lines} if lines else None
    data = output.data
    if TABLE in data:
        return {"table": data[TABLE]}
    if set(data) != {"text/plain"}:
        raise TypeError(
            f"A %%gpu cell shows {', '.join(sorted(data))}, which a recording does not take: show "
            "text or a DataFrame, and draw charts in a plain cell."
        )
    return {"text": data["text/plain"].splitlines(keepends=True)}


def without_paths(content: Any, name: str) -> Any:
    """Let paths of this machine in recorded texts, as in warnings and tracebacks, start at the
    project or the package. The temporary folder of the lesson's traces gets the lesson's name.
    """
    temporary = Path(tempfile.gettempdir())
    below = [re.escape(str(folder)) + "/" for folder in (temporary, temporary.resolve())]
    folders = {str(ROOT), sys.prefix, *filter(None, sys.path), str(Path.home())}
    own = {re.escape(folder) + "/" for folder in folders}
    own |= {folder + r"ipykernel_\d+/" for folder in below}
    longest_first = "|".join(sorted(own, key=len, reverse=True))
    text = json.dumps(content, ensure_ascii=False)
    # first: another folder of the machine may lie around the temporary one
    text = re.sub(rf"(?:{'|'.join(below)})tmp\w+", name, text)
    return json.loads(re.sub(longest_first, "", text))


def _run_in_kernel(client: NotebookClient, source: str) -> list[nbformat.NotebookNode]:
    """Outputs of source, which is run in the lesson's kernel, with TOOLS, but is no part of the
    lesson.
    """
    cell = nbformat.v4.new_code_cell(f"{TOOLS}\n{source}")
    client.nb.cells.append(cell)
    client.execute_cell(cell, len(client.nb.cells) - 1, store_history=False)
    client.nb.cells.pop()
    return cell.outputs


def publish_values(names: list[str]) -> None:
    """In the lesson's kernel: put the named variables' values into the cell's outputs."""
    variables = get_ipython().user_ns
    missing = [name for name in names if name not in variables]
    if missing:
        lacking = ", ".join(missing)
        raise NameError(f"a %%gpu line hands on {lacking}, which its cell does not define")
    values = {name: encode(name, variables[name]) for name in names}
    display({VALUES: values, "text/plain": ""}, raw=True)


def encode_tables() -> None:
    """In the lesson's kernel: let each DataFrame that a cell shows carry its data."""
    bundles = get_ipython().display_formatter.mimebundle_formatter
    bundles.for_type(
        pd.DataFrame, lambda frame, **_: {TABLE: encode("a table", _plain_frame(frame))}
    )


def _plain_frame(frame: pd.DataFrame) -> pd.DataFrame:
    """A table in which all but numbers, booleans and None is the text that pandas shows of it."""

    def simple(value):
        return value if isinstance(value, SIMPLE) else str(value)

    return frame.map(simple).rename(index=simple, columns=simple)


def peak_memory() -> int:
    """In the lesson's kernel: the most GPU memory it ever held, MiB."""
    return torch.cuda.max_memory_reserved() >> 20


def provenance() -> dict:
    """Where and with what a recording was made."""
    versions = {package: version(package) for package in PACKAGES}
    for package in EXTRAS:
        with suppress(PackageNotFoundError):
            versions[package] = version(package)
    today = str(datetime.date.today())
    return machine() | {"gpus": torch.cuda.device_count(), "date": today, "versions": versions}


def gpu_slug() -> str:
    """The GPU's name as a folder name: NVIDIA H200 -> nvidia-h200."""
    return re.sub(r"[^a-z0-9]+", "-", torch.cuda.get_device_name().lower()).strip("-")


def main(names: list[str]) -> int:
    """Record the named lessons, or all, also those after one that fails.

    Returns 1 if one failed, 2 if nothing could be tried, 130 if interrupted.
    """
    if not torch.cuda.is_available():
        print(f"Recording {NEEDS_GPU}", file=sys.stderr)
        return 2
    chosen = [path for path in lessons() if not names or lesson_name(path) in names]
    unknown = set(names) - {lesson_name(path) for path in chosen}
    if unknown:
        print(f"No lesson is called {', '.join(sorted(unknown))}.", file=sys.stderr)
        return 2
    for leftover in (TRACES / gpu_slug()).rglob(".saving-*"):  # of a recorder that was killed
        shutil.rmtree(leftover, ignore_errors=True)
    all_done = True
    for path in chosen:
        try:
            done, sentence = try_to_record(path)
        except KeyboardInterrupt:
            print(f"{path.stem}: interrupted, so its earlier recording stays.", file=sys.stderr)
            return 130
        print(f"{path.stem}: {sentence}", file=sys.stdout if done else sys.stderr)
        all_done &= done
    return 0 if all_done else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
