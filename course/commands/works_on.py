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
from course.machine import machine
from course.paths import NOTEBOOKS, ROOT, TRACES, lesson_name, short
from course.recordings.cells import lessons

ROWS = TRACES / "works_on.json"
EXECUTED = TRACES / "local" / "executed"
ASK = """from course.commands.record import peak_memory
from course.lesson import current

[current().live, peak_memory()]"""


def run_lessons(paths: list[Path], folder: Path = EXECUTED) -> dict[str, dict]:
    """Run notebooks through nbmake, all in one pytest; return seconds and peak GPU MiB of each live
    one, by lesson.

    The executed copies are left in folder. A lesson that played its recording, for want of GPUs or
    packages, is left out. Raises RuntimeError with pytest's words unless every one passed and every
    code cell in it ran.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        copies = [_with_asking_cell(path, Path(temporary)) for path in paths]
        run, cases = through_nbmake(copies, "--nbmake-timeout=600", "--overwrite")
        for copy in copies:
            shutil.copy(copy, folder)
    if run.returncode:
        where = f"the copies in {short(folder)} show where"
        raise RuntimeError(f"Not every lesson ran to its end; {where}.\n{run.stdout[-3000:]}")
    told = [_row(folder / path.name) for path in paths]
    took = [
        (path, case[0], mib)
        for path, case, (live, mib) in zip(paths, cases, told, strict=True)
        if live
    ]
    return {
        lesson_name(path): {"seconds": round(seconds, 1), "peak_gpu_mib": mib}
        for path, seconds, mib in took
    }


def through_nbmake(paths: list[Path], *options: str, env: dict | None = None) -> tuple:
    """Run notebooks through nbmake, one after the other, in a pytest that heeds no settings of the
    project.

    options: of pytest and nbmake; env: the environment, by default this process's.
    Returns the finished process, and for each notebook its seconds and whether it passed.
    """
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "results.xml"
        own = ["--nbmake", f"--junitxml={report}", "--override-ini=addopts="]
        plugins = [
            "--disable-plugin-autoload",
            "-pnbmake",
            "-pno:cacheprovider",
        ]  # others take a second to load
        command = [sys.executable, "-m", "pytest", *plugins, *own, *options, *map(str, paths)]
        run = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)
        cases = ElementTree.parse(report).iter("testcase") if report.exists() else ()
        return run, [(float(case.get("time", 0)), len(case) == 0) for case in cases]


def _with_asking_cell(path, folder):
    """A copy of the notebook with one more cell, which asks whether it ran live and for the most
    GPU memory it held.
    """
    notebook = nbformat.read(path, as_version=4)
    notebook.cells.append(nbformat.v4.new_code_cell(ASK))
    nbformat.write(notebook, folder / path.name)
    return folder / path.name


def _row(path):
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


def keep(row: dict, rows: Path = ROWS, add: bool = False) -> None:
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


def table(rows: Path = ROWS) -> str:
    """The rows as a Markdown table: a line per machine and torch, with the total over its
    lessons.
    """
    if not rows.exists():
        return "*No live run has been kept yet.*"
    lines = [
        "| GPU | driver | torch | Python | lessons | seconds | peak GPU memory | date |",
        "|---" * 8 + "|",
    ]
    for row in json.loads(rows.read_text()):
        took = row["lessons"].values()
        seconds, memory = (
            sum(one["seconds"] for one in took),
            max(one["peak_gpu_mib"] for one in took),
        )
        cells = [
            row["gpu"],
            row["driver"],
            row["torch"],
            row["python"],
            len(took),
            f"{seconds:.0f}",
            f"{memory} MiB",
        ]
        lines.append(f"| {' | '.join(map(str, cells))} | {row['date']} |")
    return "\n".join(lines)


def run_at_once(paths: list[Path], jobs: int) -> tuple[dict[str, dict], list[RuntimeError]]:
    """run_lessons with up to so many lessons at a time, and the errors of those that failed.

    Their seconds then include the time in which they wait for each other.
    """

    def run_one(path: Path) -> dict[str, dict] | RuntimeError:
        try:
            return run_lessons([path])
        except RuntimeError as error:
            return error

    with ThreadPoolExecutor(jobs) as pool:
        results = list(pool.map(run_one, paths))
    errors = [one for one in results if isinstance(one, RuntimeError)]
    took = [one for one in results if isinstance(one, dict)]
    return {name: row for one in took for name, row in one.items()}, errors


def main(words: list[str] | None = None) -> int:
    """Run, keep and print; returns 1 if a lesson failed, 2 without a GPU."""
    parser = argparse.ArgumentParser(prog="make works-on", description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=1, help="lessons at a time (1)")
    parser.add_argument("lessons", nargs="*", metavar="LESSON", help="only these")
    arguments = parser.parse_args(words)
    paths = [path for path in lessons() if path.parent == NOTEBOOKS]
    if unknown := set(arguments.lessons) - set(map(lesson_name, paths)):
        parser.error(f"no lesson is called {min(unknown)}, as {lesson_name(paths[0])} is.")
    if arguments.lessons:
        paths = [path for path in paths if lesson_name(path) in arguments.lessons]
    if not torch.cuda.is_available():
        print(
            "Running live needs a CUDA GPU, and torch sees none here (`make doctor` says why).",
            file=sys.stderr,
        )
        return 2
    took, errors = run_at_once(paths, arguments.jobs)
    for error in errors:
        print(error, file=sys.stderr)
    row = machine() | {"date": str(datetime.date.today()), "lessons": took}
    keep(row, add=bool(arguments.lessons or errors))
    print(f"{len(took)} lessons ran live; the row is in {short(ROWS)}.\n{table()}")
    if errors:
        return 1
    if played := [name for name in map(lesson_name, paths) if name not in took]:
        print(
            "These need more than this machine has, and played their recordings: "
            f"{', '.join(played)}."
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
