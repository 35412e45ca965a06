"""Write the README's picture and tables, and the lessons' minutes:  python -m docs.readme"""

import json
import re
from pathlib import Path

import matplotlib
import nbformat
import pandas as pd
from matplotlib import pyplot as plt

from course.commands.works_on import table as works_on
from course.paths import NOTEBOOKS, ROOT, lesson_name
from course.recordings.recording import recorded_lesson, recordings
from docs.minutes import stated, write_minutes
from helpers.charts import cpu_gpu_chart
from helpers.timing import compare, quartiles
from helpers.trace import read_trace

README = ROOT / "README.md"
PICTURE = ROOT / "docs/static/cpu_gpu.png"


def headline() -> str:
    """What one graph saves on the reference GPU, in two sentences, and a row for each other GPU."""
    every = recordings("start_here")
    losses, timings = every[0].value("losses"), every[0].value("timings")
    equal = int((losses["eager"] == losses["whole-step graph"]).sum())
    host, step = (quartiles(timings, column)["median"] for column in ("host_us", "step_us"))
    lines = [
        f"On an {every[0].about['gpu']}, one CUDA graph cuts this training step from "
        f"**{step.iloc[0]:.0f} to {step.iloc[1]:.0f} µs** and its CPU time from "
        f"**{host.iloc[0]:.0f} to {host.iloc[1]:.0f} µs**. "
        f"**{equal} of {len(losses)} losses** match eager's bit for bit.",
        "",
        "| median [quartiles] | host time, µs: eager | one graph "
        "| step time, µs: eager | one graph | a step is |",
        "|---|---|---|---|---|---|",
    ]
    for one in every:
        host, step, _, faster = compare(one.value("timings")).T.to_numpy()
        cells = [f"{one.about['gpu']}, torch {one.about['torch']}", *host, *step, faster[1]]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def lesson_table() -> str:
    """How long the lessons take, and a table of them, from their first screens and recordings."""
    lines = [
        "| | lesson | needs | minutes | after it you can | GPU memory | recorded on |",
        "|---" * 7 + "|",
    ]
    reading = exercising = 0
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        first = nbformat.read(path, as_version=4).cells[0].source
        title = _said(path, first, "# ", r"^# (.*)")
        promise = _said(
            path, first, "After this lesson", r"\*\*After this lesson\*\*,? you can (.*)\."
        )
        cells = [
            int(path.stem[:2]),
            f"[{title}](notebooks/{path.name})",
            needs(path, first),
            stated(path),
            promise,
            recorded_on(path, first),
        ]
        lines.append(f"| {' | '.join(map(str, cells))} |")
        if lesson_name(path) != "failure_gallery":
            reading += stated(path)
            exercising += int(
                _said(path, first, "minutes of exercises", r"\+ (\d+) minutes of exercises")
            )
    number = f"{len(lines) - 3} lessons and a gallery"
    hours = f"about {reading / 60:.0f} hours, and {exercising / 60:.0f} for all the exercises"
    total = f"{number}: {hours}."
    return "\n".join([total, "", *lines])


def needs(path: Path, first: str) -> str:
    """The numbers of the lessons that a lesson builds on, as its first cell says."""
    said = _said(path, first, "you need", r"\| you need .*\n.*\n\| (.*?) \|")
    numbers = sorted(map(int, re.findall(r"\((\d+)_", said)))
    return (" to " if said.startswith("all lessons from") else ", ").join(map(str, numbers))


def _said(path, first, what, pattern):
    found = re.search(pattern, first)
    if not found:
        raise LookupError(
            f"The first cell of {path.name} does not say {what!r}: CONTRIBUTING.md shows the form."
        )
    return found[1]


def recorded_on(path: Path, first: str) -> str:
    """Two cells of the table: the GPU memory of a lesson, and where and when it was recorded."""
    gpus = {}
    for one in recordings(lesson_name(path)):
        gpus.setdefault(one.about["date"], []).append(in_short(one.about["gpu"]))
    if not gpus:
        return "not recorded yet | "
    where = "; ".join(f"{' and '.join(names)}, {date}" for date, names in gpus.items())
    return f"{_said(path, first, 'GPU memory', r'about ([0-9.]+) GiB of its memory')} GiB | {where}"


def in_short(gpu: str) -> str:
    """A GPU's name for a narrow column: NVIDIA H100 80GB HBM3 -> H100."""
    return re.sub(r" \d+GB.*", "", gpu.removeprefix("NVIDIA "))


def first_chart() -> tuple[pd.DataFrame, dict[str, float]]:
    """What the picture shows: rounds of measure() and GPU busy times of the first lesson."""
    recording = recorded_lesson("start_here")
    traces = {"eager": "eager", "whole-step graph": "whole_step_graph"}
    busy_us = {
        name: read_trace(recording.trace(file)).summary().gpu_busy_us
        for name, file in traces.items()
    }
    return recording.value("timings"), busy_us


def shown(timings: pd.DataFrame, busy_us: dict[str, float]) -> str:
    """The numbers in the picture, µs, as JSON: the picture's metadata, which a test compares."""
    medians = {
        lane: quartiles(timings, lane)["median"].round(3).to_dict()
        for lane in ("host_us", "step_us")
    }
    return json.dumps(
        medians | {"busy_us": {name: round(us, 3) for name, us in busy_us.items()}}, sort_keys=True
    )


def draw(path: Path = PICTURE) -> None:
    """Draw the first lesson's chart into a PNG."""
    chart = first_chart()
    with matplotlib.rc_context({"savefig.dpi": 160, "savefig.facecolor": "white"}):
        cpu_gpu_chart(*chart)
        figure = plt.gcf()
        figure.savefig(
            path, bbox_inches="tight", metadata={"Description": shown(*chart), "Software": None}
        )
        plt.close(figure)


def with_tables(text: str) -> str:
    """The README's text with the tables between its markers as they are now."""
    for name, lines in {
        "headline": headline(),
        "lessons": lesson_table(),
        "works on": works_on(),
    }.items():
        pattern = rf"(<!-- {name}[^>]*-->\n).*?(<!-- end of {name} -->)"
        found = list(re.finditer(pattern, text, flags=re.DOTALL))
        if len(found) != 1:
            raise LookupError(
                f"README.md needs one pair of markers for {name!r}, and has {len(found)}."
            )
        between = slice(found[0].end(1), found[0].start(2))
        text = f"{text[: between.start]}{lines}\n{text[between.stop :]}"
    return text


if __name__ == "__main__":
    for lesson in sorted(NOTEBOOKS.glob("*.ipynb")):
        write_minutes(lesson)
    README.write_text(with_tables(README.read_text()))
    draw()
