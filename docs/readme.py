"""Write what the README shows of the recordings, its picture and its tables:  python -m docs.readme"""

import json
import re

import matplotlib
import nbformat
from matplotlib import pyplot as plt

from course.notebooks import NOTEBOOKS, REFERENCE_GPU, ROOT, TRACES, lesson_name
from course.recording import recorded_lesson
from course.works_on import table as works_on
from helpers.charts import cpu_gpu_chart
from helpers.timing import quartiles
from helpers.trace import read_trace

README = ROOT / "README.md"
PICTURE = ROOT / "docs/static/cpu_gpu.png"


def lesson_table():
    """The lessons as a Markdown table, from what each one's first screen and its recording say."""
    lines = ["| lesson | minutes | after it you can | GPU memory | recorded on |", "|---|---|---|---|---|"]
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        first = nbformat.read(path, as_version=4).cells[0].source
        title = _said(path, first, "# ", r"^# (.*)")
        promise = _said(path, first, "After this lesson", r"\*\*After this lesson\*\*,? you can (.*)\.")
        lines.append(f"| [{title}](notebooks/{path.name}) | {minutes(path, first)} | {promise} | {recorded_on(path)} |")
    return "\n".join(lines)


def minutes(path, first):
    """The minutes that a lesson takes up to its exercises, as its first cell says."""
    return _said(path, first, "minutes", r"\| (\d+) minutes\b")


def _said(path, first, what, pattern):
    found = re.search(pattern, first)
    if not found:
        raise LookupError(f"The first cell of {path.name} does not say {what!r}: CONTRIBUTING.md shows the form.")
    return found[1]


def recorded_on(path):
    """A lesson's peak GPU memory and where it was recorded: two cells of the table."""
    name = lesson_name(path)
    if not (TRACES / REFERENCE_GPU / f"{name}.ipynb").exists():
        return "not recorded yet | "
    about = recorded_lesson(name).about
    return f"{about['peak_gpu_mib'] / 1024:.1f} GiB | {about['gpu']}, {about['date']}"


def first_chart():
    """What the README's picture shows: rounds of measure() and GPU busy times, as the first lesson recorded them."""
    recording = recorded_lesson("start_here")
    traces = {"eager": "eager", "whole-step graph": "whole_step_graph"}
    busy_us = {name: read_trace(recording.trace(file)).summary().gpu_busy_us for name, file in traces.items()}
    return recording.value("timings"), busy_us


def shown(timings, busy_us):
    """The numbers in the picture, us, as JSON; they ride in the picture's metadata, so that a test can compare."""
    medians = {lane: quartiles(timings, lane)["median"].round(3).to_dict() for lane in ("host_us", "step_us")}
    return json.dumps(medians | {"busy_us": {name: round(us, 3) for name, us in busy_us.items()}}, sort_keys=True)


def draw(path=PICTURE):
    """Draw the first lesson's chart into a PNG."""
    chart = first_chart()
    with matplotlib.rc_context({"savefig.dpi": 160, "savefig.facecolor": "white"}):
        figure = cpu_gpu_chart(*chart).figure
        figure.savefig(path, bbox_inches="tight", metadata={"Description": shown(*chart), "Software": None})
        plt.close(figure)


def with_tables(text):
    """The README's text with the tables between its markers as they are now."""
    for name, lines in {"lessons": lesson_table(), "works on": works_on()}.items():
        pattern = rf"(<!-- {name}[^>]*-->\n).*?(<!-- end of {name} -->)"
        text, found = re.subn(
            pattern, lambda match, lines=lines: f"{match[1]}{lines}\n{match[2]}", text, flags=re.DOTALL
        )
        if found != 1:
            raise LookupError(f"README.md needs one pair of markers for {name!r}, and has {found}.")
    return text


if __name__ == "__main__":
    README.write_text(with_tables(README.read_text()))
    draw()
