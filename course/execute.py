"""Run a lesson in a kernel of its own, for the recorder: outputs, the values handed on, and where it ran."""

import datetime
import os
import re
import time
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import nbformat
import torch
from IPython import get_ipython
from IPython.display import display
from nbclient import NotebookClient

from course.definitions import hashes
from course.doctor import machine
from course.lesson import RECORD_TO
from course.notebooks import code_cells, handed_on, lesson_name
from course.portable import without_paths
from course.recording import FORMAT
from course.values import MIME, encode

CELL_SECONDS = 600
PACKAGES = ("torch", "pandas", "matplotlib", "nbclient", "ipykernel")
EXTRAS = ("megatron-core", "transformer-engine", "triton")  # named where they are installed


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
                cell.outputs += _hidden(client, f"publish({handed_on(cell.source)!r})")
        memory = _hidden(client, "peak_memory()")[0].data["text/plain"]
    about = {"format": FORMAT} | provenance() | {"definitions": hashes(code_cells(notebook))}
    about |= {"seconds": round(time.perf_counter() - start, 1), "peak_gpu_mib": int(memory)}
    notebook.metadata = {"kernelspec": notebook.metadata.kernelspec, "recording": about}
    return without_paths(notebook, lesson_name(path))


def _hidden(client: NotebookClient, call: str) -> list[nbformat.NotebookNode]:
    """Outputs of a call to this module, run in the lesson's kernel but not part of the lesson."""
    cell = nbformat.v4.new_code_cell(f"__import__('course.execute').execute.{call}")
    client.nb.cells.append(cell)
    client.execute_cell(cell, len(client.nb.cells) - 1, store_history=False)
    client.nb.cells.pop()
    return cell.outputs


def publish(names: list[str]) -> None:
    """In the lesson's kernel: put the named variables' values into the cell's outputs."""
    variables = get_ipython().user_ns
    missing = [name for name in names if name not in variables]
    if missing:
        raise NameError(f"a %%gpu line hands on {', '.join(missing)}, which its cell does not define")
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
    return machine() | {"gpus": torch.cuda.device_count(), "date": str(datetime.date.today()), "versions": versions}


def gpu_slug() -> str:
    """The GPU's name as a folder name: NVIDIA H200 -> nvidia-h200."""
    return re.sub(r"[^a-z0-9]+", "-", torch.cuda.get_device_name().lower()).strip("-")
