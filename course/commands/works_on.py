"""Run every lesson live through nbmake, and keep what it took:

    python -m course.commands.works_on [--jobs 8] [LESSON ...]

The executed notebooks go into traces/local/executed, this machine's row into traces/works_on.json.
Lessons that are named, or that passed where another failed, are added to the row that is there.
"""

import argparse
import ast
import datetime
import json
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from xml.etree import ElementTree

import nbformat
import torch

from course.files import replacing
from course.lessons import lessons
from course.machine import NEEDS_GPU, machine, missing_for_lesson
from course.paths import ROOT, TRACES, lesson_name, short

ROWS = TRACES / "works_on.json"
EXECUTED = TRACES / "local" / "executed"
ASK = """from course.commands.record import peak_memory
from course.lesson import current

[current().live, peak_memory()]"""


def run_lesson(path: Path, folder: Path = EXECUTED) -> dict | None:
    """Run a notebook through nbmake, in a pytest that heeds no settings of the project; return its
    seconds and peak GPU MiB, or None if it played its recording, for want of GPUs or packages.

    The executed copy is left in folder. Raises RuntimeError with pytest's words unless it passed
    and every code cell ran.
    """
    folder.mkdir(parents=True, exist_ok=True)
    notebook = nbformat.read(path, as_version=4)
    notebook.cells.append(nbformat.v4.new_code_cell(ASK))  # whether it is live, and its memory
    with tempfile.TemporaryDirectory() as temporary:
        copy, report = Path(temporary) / path.name, Path(temporary) / "results.xml"
        nbformat.write(notebook, copy)
        own = ["--nbmake", "--nbmake-timeout=600", "--overwrite", f"--junitxml={report}"]
        plugins = ["--disable-plugin-autoload", "-pnbmake", "-pno:cacheprovider"]  # others are slow
        command = [sys.executable, "-m", "pytest", "--override-ini=addopts=", *plugins, *own]
        run = subprocess.run([*command, str(copy)], cwd=ROOT, capture_output=True, text=True)
        shutil.copy(copy, folder)
        if run.returncode:
            said = f"{path.name} did not run to its end; the copy in {short(folder)} shows where."
            raise RuntimeError(f"{said}\n{run.stdout[-3000:]}")
        (case,) = ElementTree.parse(report).iter("testcase")
    live, mib = _pop_measurement(folder / path.name)
    seconds = float(case.get("time", 0))
    return {"seconds": round(seconds, 1), "peak_gpu_mib": mib} if live else None


def _pop_measurement(path):
    """Whether it ran live, and MiB: what the added cell gave; the cell itself is taken out of the
    copy again.
    """
    notebook = nbformat.read(path, as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    if not all(cell.execution_count for cell in code):
        raise RuntimeError(f"{path.name} has cells that did not run.")
    added = notebook.cells.pop()
    nbformat.write(notebook, path)
    return ast.literal_eval(added.outputs[0].data["text/plain"])


def save_row(row: dict, rows: Path = ROWS, add: bool = False) -> None:
    """Put a machine's row into the file of rows, in the place of its earlier one for the same GPU
    and torch, or add its lessons, with their date, to that one.
    """
    others = []
    for other in json.loads(rows.read_text()) if rows.exists() else []:
        if (other["gpu"], other["torch"]) != (row["gpu"], row["torch"]):
            others.append(other)
        elif add:
            dated = {name: one | {"date": row["date"]} for name, one in row["lessons"].items()}
            row = other | {"lessons": other["lessons"] | dated}
    with replacing(rows) as file:
        file.write_text(json.dumps([*others, row], indent=1) + "\n")


def rows_as_markdown(rows: Path = ROWS) -> str:
    """The rows as a Markdown table: a line per machine and torch, with the total over its
    lessons.
    """
    if not rows.exists():
        return "*No live run has been kept yet.*"
    head = "| GPU | driver | torch | Python | lessons | seconds | peak GPU memory | date |"
    lines = [head, "|---" * 8 + "|"]
    for row in json.loads(rows.read_text()):
        took = row["lessons"].values()
        machine = " | ".join(row[key] for key in ("gpu", "driver", "torch", "python"))
        seconds = sum(one["seconds"] for one in took)
        memory = max(one["peak_gpu_mib"] for one in took)
        cost = f"{len(took)} | {seconds:.0f} | {memory} MiB"
        lines.append(f"| {machine} | {cost} | {row['date']} |")
    return "\n".join(lines)


def run_at_once(paths: list[Path], jobs: int) -> tuple[dict[str, dict], list[RuntimeError]]:
    """run_lesson with up to so many lessons at a time, by lesson, and the errors of those that
    failed; their seconds include the time in which they wait for each other.
    """
    took, errors = {}, []
    with ThreadPoolExecutor(jobs) as pool:
        runs = {lesson_name(path): pool.submit(run_lesson, path) for path in paths}
        for name, run in runs.items():
            try:
                if row := run.result():
                    took[name] = row
            except RuntimeError as error:
                errors.append(error)
    return took, errors


def main(words: list[str] | None = None) -> int:
    """Run, keep and print; returns 1 if a lesson failed, 2 without a GPU."""
    parser = argparse.ArgumentParser(prog="make works-on", description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=1, help="lessons at a time (1)")
    parser.add_argument("lessons", nargs="*", metavar="LESSON", help="only these")
    arguments = parser.parse_args(words)
    paths = lessons()
    if unknown := set(arguments.lessons) - set(map(lesson_name, paths)):
        one = lesson_name(paths[0])
        parser.error(f"no lesson is called {min(unknown)}; write {one}, for example.")
    if arguments.lessons:
        paths = [path for path in paths if lesson_name(path) in arguments.lessons]
    if not torch.cuda.is_available():
        print(f"Running live {NEEDS_GPU}", file=sys.stderr)
        return 2
    took, errors = run_at_once(paths, arguments.jobs)
    for error in errors:
        print(error, file=sys.stderr)
    if took:
        row = machine() | {"date": str(datetime.date.today()), "lessons": took}
        save_row(row, add=bool(arguments.lessons or errors))
        print(f"{len(took)} lessons ran live; the row is in {short(ROWS)}.\n{rows_as_markdown()}")
    if played := [lesson_name(path) for path in paths if missing_for_lesson(path)]:
        names = ", ".join(played)
        print(f"These need more than this machine has, and played their recordings: {names}.")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
