"""Record lessons on this machine's GPU:  python -m course.commands.record [lesson ...]"""

import datetime
import os
import re
import shutil
import sys
import tempfile
import time
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import nbformat
import torch
from IPython import get_ipython
from IPython.display import display
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

from course.files import SavingError, replacing
from course.lesson import RECORD_TO
from course.machine import NeedsMore, machine
from course.paths import TRACES, lesson_name
from course.recordings.cells import code_cells, handed_on, lessons
from course.recordings.fingerprints import hashes
from course.recordings.recording import FORMAT, Recording, digest, trace_name
from course.recordings.sanitise import without_chatter, without_paths, without_running_outputs
from course.recordings.values import MIME, encode

COLOUR = re.compile(r"\x1b\[[\d;]*m")
CELL_SECONDS = 600
PACKAGES = ("torch", "pandas", "matplotlib", "nbclient", "ipykernel")
EXTRAS = ("megatron-core", "transformer-engine", "triton")  # named where they are installed
TOOLS = "from course.commands.record import peak_memory as _peak_memory, publish as _publish"


def record(path: Path, traces: Path = TRACES) -> Path:
    """Run a lesson on this machine's GPU and keep it
    as traces/<gpu>/<lesson>.ipynb; return that path.

    The lesson's profiler traces go into the folder beside it. The recording is replaced in one
    step, when the whole lesson has run: CellExecutionError comes through, and the earlier recording
    stays as it was.
    """
    name, folder = lesson_name(path), traces / gpu_slug()
    target = folder / f"{name}.ipynb"
    with tempfile.TemporaryDirectory() as staging:
        notebook = run(path, Path(staging))
        files = {
            file.name.removesuffix(".json.gz"): file.read_bytes()
            for file in sorted(Path(staging).iterdir())
        }
    named = {trace: trace_name(trace, content) for trace, content in files.items()}
    notebook.metadata["recording"] |= {"traces": named}
    notebook = nbformat.v4.reads(nbformat.v4.writes(notebook))  # as it will be read
    notebook.metadata["recording"]["digest"] = digest(notebook)
    for (
        trace,
        content,
    ) in files.items():  # under new names, so that the earlier recording keeps its own
        with replacing(folder / name / named[trace]) as file:
            file.write_bytes(content)
    with replacing(target) as file:
        file.write_text(nbformat.v4.writes(notebook) + "\n", encoding="utf-8", newline="\n")
    for file in (folder / name).glob("*"):
        if file.name not in named.values():
            file.unlink()
    return target


def attempt(path: Path) -> tuple[bool, str]:
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
    except SavingError as error:
        problem = str(error)
    else:
        return (
            True,
            f"recorded in {about['seconds']} s, peak GPU memory {about['peak_gpu_mib']} MiB",
        )
    return False, f"failed, so its earlier recording stays.\n  {problem}"


def run(path: Path, staged: Path) -> nbformat.NotebookNode:
    """Execute a lesson in a kernel of its own; return it with outputs, values and provenance."""
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(
        notebook,
        timeout=CELL_SECONDS,
        coalesce_streams=True,
        record_timing=False,
        shutdown_kernel="immediate",  # nothing is left to do in it
        resources={"metadata": {"path": str(Path(path).parent)}},
    )
    start = time.perf_counter()
    # a progress bar is no result: it would change with every recording
    with client.setup_kernel(env=os.environ | {RECORD_TO: str(staged), "TQDM_DISABLE": "1"}):
        for index, cell in enumerate(list(notebook.cells)):
            client.execute_cell(cell, index)
            if cell.cell_type == "code" and handed_on(cell.source):
                cell.outputs += _hidden(client, f"_publish({handed_on(cell.source)!r})")
        memory = _hidden(client, "_peak_memory()")[0].data["text/plain"]
    about = {"format": FORMAT} | provenance() | {"definitions": hashes(code_cells(notebook))}
    about |= {"seconds": round(time.perf_counter() - start, 1), "peak_gpu_mib": int(memory)}
    notebook.metadata = {"kernelspec": notebook.metadata.kernelspec, "recording": about}
    return without_chatter(without_running_outputs(without_paths(notebook, lesson_name(path))))


def _hidden(client: NotebookClient, source: str) -> list[nbformat.NotebookNode]:
    """Outputs of source, which is run in the lesson's
    kernel, with TOOLS, but is no part of the lesson.
    """
    cell = nbformat.v4.new_code_cell(f"{TOOLS}\n{source}")
    client.nb.cells.append(cell)
    client.execute_cell(cell, len(client.nb.cells) - 1, store_history=False)
    client.nb.cells.pop()
    return cell.outputs


def publish(names: list[str]) -> None:
    """In the lesson's kernel: put the named variables' values into the cell's outputs."""
    variables = get_ipython().user_ns
    missing = [name for name in names if name not in variables]
    if missing:
        raise NameError(
            f"a %%gpu line hands on {', '.join(missing)}, which its cell does not define"
        )
    values = {name: encode(name, variables[name]) for name in names}
    display({MIME: values, "text/plain": f"handed on: {', '.join(names)}"}, raw=True)


def peak_memory() -> int:
    """In the lesson's kernel: the most GPU memory it ever held, MiB."""
    return torch.cuda.max_memory_reserved() >> 20


def provenance() -> dict:
    """Where and with what a recording was made."""
    versions = {package: version(package) for package in PACKAGES}
    for package in EXTRAS:
        with suppress(PackageNotFoundError):
            versions[package] = version(package)
    return machine() | {
        "gpus": torch.cuda.device_count(),
        "date": str(datetime.date.today()),
        "versions": versions,
    }


def gpu_slug() -> str:
    """The GPU's name as a folder name: NVIDIA H200 -> nvidia-h200."""
    return re.sub(r"[^a-z0-9]+", "-", torch.cuda.get_device_name().lower()).strip("-")


def main(names: list[str]) -> int:
    """Record the named lessons, or all, also those after one that fails.

    Returns 1 if one failed, 2 if nothing could be tried, 130 if interrupted.
    """
    if not torch.cuda.is_available():
        print(
            "Recording needs a CUDA GPU, and torch sees none here (`make doctor` says why).",
            file=sys.stderr,
        )
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
            done, sentence = attempt(path)
        except KeyboardInterrupt:
            print(f"{path.stem}: interrupted, so its earlier recording stays.", file=sys.stderr)
            return 130
        print(f"{path.stem}: {sentence}", file=sys.stdout if done else sys.stderr)
        all_done &= done
    return 0 if all_done else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
