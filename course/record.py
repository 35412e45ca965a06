"""Record lessons on this machine's GPU:  python -m course.record [lesson ...]"""

import datetime
import os
import re
import shutil
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

import nbformat
import torch
from IPython import get_ipython
from IPython.display import display
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

from course.doctor import machine
from course.lesson import RECORD_TO
from course.portable import without_paths
from course.recording import TRACES, Recording, handed_on, lesson_name, lessons, module_hashes
from course.values import MIME, encode

CELL_SECONDS = 600
PACKAGES = ("torch", "pandas", "matplotlib", "nbclient", "ipykernel")


def record(path, traces=TRACES):
    """Run a lesson on this machine's GPU and keep it as traces/<gpu>/<lesson>.ipynb; return that path.

    The lesson's profiler traces go into the folder beside it. Nothing is replaced unless the whole
    lesson ran: CellExecutionError comes through, and the earlier recording stays as it was.
    """
    name, folder = lesson_name(path), traces / gpu_slug()
    target = folder / f"{name}.ipynb"
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".staging-") as staging:
        staged = Path(staging) / "traces"
        staged.mkdir()
        notebook = run(path, staged)
        nbformat.write(notebook, Path(staging) / "lesson.ipynb")
        shutil.rmtree(folder / name, ignore_errors=True)
        if any(staged.iterdir()):
            staged.rename(folder / name)
        (Path(staging) / "lesson.ipynb").replace(target)
    return target


def run(path, staged):
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
                cell.outputs += _hidden(client, f"publish({handed_on(cell.source)!r})")
        memory = _hidden(client, "peak_memory()")[0].data["text/plain"]
    notebook.metadata = {
        "kernelspec": notebook.metadata.kernelspec,
        "recording": provenance() | {"seconds": round(time.perf_counter() - start, 1), "peak_gpu_mib": int(memory)},
    }
    return without_paths(notebook, lesson_name(path))


def _hidden(client, call):
    """Outputs of a call to this module, run in the lesson's kernel but not part of the lesson."""
    cell = nbformat.v4.new_code_cell(f"__import__('course.record').record.{call}")
    client.nb.cells.append(cell)
    client.execute_cell(cell, len(client.nb.cells) - 1, store_history=False)
    client.nb.cells.pop()
    return cell.outputs


def publish(names):
    """In the lesson's kernel: put the named variables' values into the cell's outputs."""
    variables = get_ipython().user_ns
    missing = [name for name in names if name not in variables]
    if missing:
        raise NameError(f"a %%gpu line hands on {', '.join(missing)}, which its cell does not define")
    values = {name: encode(name, variables[name]) for name in names}
    display({MIME: values, "text/plain": f"handed on: {', '.join(names)}"}, raw=True)


def peak_memory():
    """In the lesson's kernel: the most GPU memory it ever held, MiB."""
    return torch.cuda.max_memory_reserved() >> 20


def provenance():
    """Where and with what a recording was made."""
    versions = {package: version(package) for package in PACKAGES}
    return machine() | {"date": str(datetime.date.today()), "versions": versions, "modules": module_hashes()}


def gpu_slug():
    """The GPU's name as a folder name: NVIDIA H200 -> nvidia-h200."""
    return re.sub(r"[^a-z0-9]+", "-", torch.cuda.get_device_name().lower()).strip("-")


def attempt(path):
    """Record one lesson; returns whether that went well, and what there is to say."""
    try:
        about = Recording.read(record(path)).about
    except CellExecutionError as error:
        problem = f"{error.ename}: {error.evalue}"
    except DeadKernelError:
        problem = "Its kernel died: somebody killed it, or the machine ran out of memory."
    except CellTimeoutError:
        problem = f"A cell took longer than {CELL_SECONDS} s."
    except OSError as error:
        problem = f"The recording could not be written: {error.strerror}."
    else:
        return True, f"recorded in {about['seconds']} s, peak GPU memory {about['peak_gpu_mib']} MiB"
    return False, f"failed, so its earlier recording stays.\n  {problem}"


def main(names):
    """Record the named lessons, or all, also those after one that fails.

    Returns 1 if one failed, 2 if nothing could be tried, 130 if interrupted.
    """
    if not torch.cuda.is_available():
        print("Recording needs a CUDA GPU, and torch sees none here (`make doctor` says why).", file=sys.stderr)
        return 2
    chosen = [path for path in lessons() if not names or lesson_name(path) in names]
    unknown = set(names) - {lesson_name(path) for path in chosen}
    if unknown:
        print(f"No lesson is called {', '.join(sorted(unknown))}.", file=sys.stderr)
        return 2
    for leftover in (TRACES / gpu_slug()).glob(".staging-*"):  # of a recorder that was killed
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
