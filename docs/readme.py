"""Write the README's pictures and tables, the page of the lessons, and the lessons' minutes:

python -m docs.readme
"""

import json
import re
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import matplotlib
import pandas as pd
from matplotlib import pyplot as plt

from course.commands.works_on import rows_as_markdown as works_on
from course.lessons import by_parts, is_optional, lesson_file, lessons, title
from course.paths import NOTEBOOKS, ROOT, lesson_name
from course.progress import exercises
from course.recordings.recording import find_recording, recordings_of
from docs.address import open_links, repository, where_to_ask
from docs.minutes import first_screen_match, stated_minutes, write_minutes
from docs.played import recorded_lessons
from docs.search import GALLERY
from exercises import unfinished
from helpers.charts import cpu_gpu_chart
from helpers.timing import compare, quartiles
from helpers.trace import Trace, read_trace
from trace_report.chart import draw_trace_report

README = ROOT / "README.md"
LESSONS = ROOT / "docs/lessons.md"
PATHS: dict[str, list[str]] = tomllib.loads((ROOT / "docs/paths.toml").read_text())
WHOLE_STEP = ("whole-step graph", "whole_step")  # the graph of a step, in recorded tables
EXERCISING = r"\+ (\d+) minutes of exercises"
PROMISE = r"\*\*After this lesson\*\*,? you can (.*)\."
NEEDS = r"\| you need .*\n.*\n\| (.*?) \|"  # in a lesson's first cell
COLAB_BADGE = "https://colab.research.google.com/assets/colab-badge.svg"
CODESPACES_BADGE = "https://github.com/codespaces/badge.svg"
BINDER_BADGE = "https://mybinder.org/badge_logo.svg"
PICTURE = ROOT / "docs/static/cpu_gpu.png"
REPORT = ROOT / "docs/static/trace_report.png"


def headline() -> str:
    """What one graph saves on the reference GPU, in two sentences."""
    one = recordings_of("start_here")[0]
    losses, timings = one.value("losses"), one.value("timings")
    equal = int((losses["eager"] == losses["whole-step graph"]).sum())
    host, step = (quartiles(timings, column)["median"] for column in ("host_us", "step_us"))
    return (
        f"On an {one.about['gpu']}, one CUDA graph cuts a step of a small network's training from "
        f"**{step.iloc[0]:.0f} to {step.iloc[1]:.0f} µs** and its CPU time from "
        f"**{host.iloc[0]:.0f} to {host.iloc[1]:.0f} µs**. "
        f"**{equal} of {len(losses)} losses** match the eager ones bit for bit."
    )


def quartile_table() -> str:
    """The same step with its quartiles, a row for each GPU that recorded it."""
    lines = [
        "| median [quartiles] | host time, µs: eager | one graph "
        "| step time, µs: eager | one graph | a step is |",
        "|---|---|---|---|---|---|",
    ]
    for one in recordings_of("start_here"):
        host, step, _, faster = compare(one.value("timings")).T.to_numpy()
        cells = [f"{one.about['gpu']}, torch {one.about['torch']}", *host, *step, faster[1]]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def course_totals() -> str:
    """How much there is: exercises, failures and hours, for the README's first screen."""
    by_part = parts()
    everything = [path for paths in by_part.values() for path in paths]
    asked = sum(len(exercises(path)) for path in everything)
    failures = len(find_recording(GALLERY).value("exhibits"))
    evening = [lesson_file(name) for name in PATHS["have one evening"]]
    core = by_part[next(iter(by_part))]
    return (
        f"- **One evening**, {hours_of_lessons(evening)}, takes you to a graph of your own "
        f"training script. The core course takes {hours_of_lessons(core)}, everything "
        f"{hours_of_lessons(everything)}.\n"
        "- **No GPU needed.** Every lesson also plays what it measured on a real "
        f"{short_gpu_name(find_recording('start_here').about['gpu'])}.\n"
        f"- **{asked} exercises, checked at once.** You write and repair captures yourself; a "
        "stand-in for CUDA graphs runs them on any CPU, and says what is wrong.\n"
        f"- **{failures} failures, each executed**, in a [gallery](read/"
        f"{lesson_file(GALLERY).stem}.md) with causes and fixes. Many raise no error."
    )


def hours_of_lessons(paths: list[Path]) -> str:
    """The hours that lessons take, without and with their exercises; the gallery is looked up."""
    times = [minutes_of_lesson(path) for path in paths if lesson_name(path) != GALLERY]
    reading, exercising = (sum(column) / 60 for column in zip(*times, strict=True))
    return f"{reading:.0f} hours ({reading + exercising:.0f} with all exercises)"


def parts() -> dict[str, list[Path]]:
    """The recorded lessons of each part of the course."""
    recorded = set(recorded_lessons())
    return {part: sorted(recorded & set(paths)) for part, paths in by_parts().items()}


def path_table() -> str:
    """The paths with their lessons, with what these need, and with the minutes of both."""
    rows = ["| you | read | which need | minutes | with exercises |", "|---" * 5 + "|"]
    for who, names in PATHS.items():
        every = with_prerequisites([lesson_file(name) for name in names])
        read = [path for path in every if lesson_name(path) in names]
        own = [f"{lesson_number(path)} [{title(path)}](read/{path.stem}.md)" for path in read]
        before = [str(lesson_number(path)) for path in every if path not in read]
        reading, exercising = map(sum, zip(*map(minutes_of_lesson, every), strict=True))
        cells = [who, ", ".join(own), ", ".join(before), reading, reading + exercising]
        rows.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(rows)


def with_prerequisites(paths: list[Path]) -> list[Path]:
    """Lessons with all that they need, and what that needs, in reading order."""
    found: set[Path] = set()
    ahead = list(paths)
    while ahead:
        path = ahead.pop()
        if path not in found:
            found.add(path)
            ahead += prerequisites(path)
    return sorted(found)


def prerequisites(path: Path) -> list[Path]:
    """The lessons that a lesson says you need, but not those of what follows a semicolon."""
    text = first_screen_match(path, "'you need'", NEEDS).partition(";")[0]
    named = [NOTEBOOKS / name for name in re.findall(r"\((\w+\.ipynb)\)", text)]
    if text.startswith("all lessons from"):
        first, last = named
        return [one for one in lessons() if first <= one <= last]
    return named


def ratios() -> str:
    """How long the first lesson's step takes in every recording that has it both ways."""
    eager, graph, faster = zip(*eager_and_graph_medians(), strict=True)
    return (
        "How many times faster depends on the host's CPU: over the recordings, the eager step took "
        f"{min(eager):,.0f} to {max(eager):,.0f} µs, and the graph {min(graph):.0f} to "
        f"{max(graph):.0f}. So a step was {min(faster):.1f} to {max(faster):.1f} times faster "
        "([older recordings](docs/originals.md#the-same-step-on-other-machines), "
        "[benchmark](benchmarks/results/nvidia-h200.md))."
    )


def eager_and_graph_medians() -> list[tuple[float, float, float]]:
    """Medians of the eager step and of its graph, µs, and their ratio, one for each recorded table
    that times both, of the lessons that train the same step.
    """
    found = []
    for path in lessons():
        if not re.search(r"from helpers\.model import .*make_optimizer", path.read_text()):
            continue
        for one in recordings_of(lesson_name(path)):
            for table in map(one.value, {name for cell in one.cells for name in cell.values}):
                if not {"variant", "step_us"} <= set(getattr(table, "columns", [])):
                    continue
                medians = quartiles(table, "step_us")["median"]
                graphs = [medians[name] for name in WHOLE_STEP if name in medians]
                if graphs and "eager" in medians:
                    found.append((medians["eager"], graphs[0], medians["eager"] / graphs[0]))
    return found


def lesson_list() -> str:
    """What each lesson teaches, what it builds on, and what it takes, by parts."""
    lines = []
    for part, paths in parts().items():
        lines += [f"## {part}", ""]
        for path in paths:
            promise = first_screen_match(path, "'After this lesson'", PROMISE)
            facts = ["optional"] if is_optional(path) else []
            if lesson_name(path) != GALLERY:
                reading, exercising = minutes_of_lesson(path)
                facts.append(f"{reading} minutes, and {exercising} for the exercises")
            if found := format_prerequisites(path):
                facts.append(f"builds on {found}")
            facts += recording_facts(path)
            name = f"**{lesson_number(path)} [{title(path)}](../read/{path.stem}.md)**"
            lines += [f"{name}. After it you can {promise}.", "", f"*{'; '.join(facts)}.*", ""]
    return "\n".join(lines).rstrip()


def lesson_number(path: Path) -> int:
    """A lesson's number: the one in its file's name."""
    return int(path.stem[:2])


def minutes_of_lesson(path: Path) -> tuple[int, int]:
    """A lesson's minutes without its exercises, and those of its exercises."""
    exercising = first_screen_match(path, "'minutes of exercises'", EXERCISING)
    return stated_minutes(path), int(exercising)


def format_prerequisites(path: Path) -> str:
    """The numbers of the lessons that a lesson builds on, as its first cell says."""
    found = first_screen_match(path, "'you need'", NEEDS)
    numbers = sorted(map(int, re.findall(r"\((\d+)_", found)))
    return (" to " if found.startswith("all lessons from") else ", ").join(map(str, numbers))


def recording_facts(path: Path) -> list[str]:
    """The GPU memory of a lesson, and where and when it was recorded; [] if it was not yet."""
    gpus: dict[str, list[str]] = {}
    for one in recordings_of(lesson_name(path)):
        gpus.setdefault(one.about["date"], []).append(short_gpu_name(one.about["gpu"]))
    if not gpus:
        return []
    where = "; ".join(f"{' and '.join(names)}, {date}" for date, names in gpus.items())
    held = first_screen_match(path, "'GPU memory'", r"about ([0-9.]+) GiB of its memory")
    return [f"{held} GiB of GPU memory", f"recorded on {where}"]


def short_gpu_name(gpu: str) -> str:
    """A GPU's name for a narrow column: NVIDIA H100 80GB HBM3 -> H100."""
    return re.sub(r" \d+GB.*", "", gpu.removeprefix("NVIDIA "))


def first_chart_data() -> tuple[pd.DataFrame, dict[str, float]]:
    """What the picture shows: rounds of measure() and GPU busy times of the first lesson."""
    eager, graph = first_traces()
    traces = {"eager": eager, "whole-step graph": graph}
    timings = find_recording("start_here").value("timings")
    return timings, {name: trace.summary().gpu_busy_us for name, trace in traces.items()}


def first_traces() -> list[Trace]:
    """The first lesson's traces of the eager step and of the graph."""
    recording = find_recording("start_here")
    return [read_trace(recording.trace(name)) for name in ("eager", "whole_step_graph")]


def chart_metadata(timings: pd.DataFrame, busy_us: dict[str, float]) -> str:
    """The numbers in the picture, µs, as JSON: the picture's metadata, which a test compares."""
    lanes = ("host_us", "step_us")
    medians = {lane: quartiles(timings, lane)["median"].round(3).to_dict() for lane in lanes}
    rounded = {name: round(us, 3) for name, us in busy_us.items()}
    return json.dumps(medians | {"busy_us": rounded}, sort_keys=True)


def draw(path: Path = PICTURE) -> None:
    """Draw the first lesson's chart into a PNG."""
    chart = first_chart_data()
    with matplotlib.rc_context({"savefig.dpi": 160, "savefig.facecolor": "white"}):
        step_us = quartiles(chart[0], "step_us")["median"]
        eager, graph = step_us["eager"], step_us["whole-step graph"]
        found = f"One CUDA graph cuts a training step from {eager:.0f} to {graph:.0f} µs."
        cpu_gpu_chart(*chart, title=found)
        figure = plt.gcf()
        about = {"Description": chart_metadata(*chart), "Software": None}
        figure.savefig(path, bbox_inches="tight", metadata=about)
        plt.close(figure)


def draw_report(path: Path = REPORT) -> None:
    """Draw the report on the first lesson's two traces into a PNG."""
    traces = dict(zip(("eager", "graph"), first_traces(), strict=True))
    draw_trace_report(traces, path, Description=chart_metadata(*first_chart_data()), Software=None)


def badges() -> str:
    """Buttons that open the course in the browser, and where to ask; "" without an address."""
    doors = open_links(repository(), f"notebooks/{lesson_file('start_here').name}")
    shields = {"Colab": COLAB_BADGE, "Codespaces": CODESPACES_BADGE, "Binder": BINDER_BADGE}
    buttons = " ".join(
        f"[![Open Start here in {name}]({shields[name]})]({link})" for name, link in doors.items()
    )
    return f"{buttons}\n\n{where_to_ask(repository())}".strip()


def commands() -> str:
    """The commands that start the course, and fetch it where it has an address."""
    systems = "On Linux, macOS or Windows with WSL"
    if not repository():
        return f"{systems}, in the course's folder:\n\n    make lab"
    fetch = f"git clone {repository()} cuda-graphs-course"
    return f"{systems}:\n\n    {fetch}\n    cd cuda-graphs-course\n    make lab"


PAGES: dict[Path, dict[str, Callable[[], str]]] = {
    README: {
        "badges": badges,
        "headline": headline,
        "start": commands,
        "offer": course_totals,
        "paths": path_table,
        "spreads": quartile_table,
        "ratios": ratios,
    },
    LESSONS: {"lessons": lesson_list, "works on": works_on},
}


def with_tables(path: Path) -> str:
    """The text of one of PAGES with what stands between its markers as it is now."""
    text = path.read_text()
    for name, write in PAGES[path].items():
        pattern = rf"(<!-- {name}[^>]*-->\n).*?(<!-- end of {name} -->)"
        found = list(re.finditer(pattern, text, flags=re.DOTALL))
        if len(found) != 1:
            raise LookupError(
                f"{path.name} needs one pair of markers for {name!r}, and has {len(found)}."
            )
        between = slice(found[0].end(1), found[0].start(2))
        text = f"{text[: between.start]}{write()}\n{text[between.stop :]}"
    return text


def write(lessons: list[Path]) -> None:
    """Write the minutes of these lessons, and all tables; the pictures, if the first is among them.

    Raises LookupError, one sentence, for a text that lacks what the tables are made of.
    """
    for lesson in lessons:
        if lesson_name(lesson) != GALLERY:
            write_minutes(lesson)
    for page in PAGES:
        page.write_text(with_tables(page))
    if lesson_file("start_here") in lessons:
        draw()
        draw_report()


def main() -> int:
    """Write everything; returns 1, after a sentence each, if a lesson still lacks something."""
    try:
        write(recorded_lessons())
    except LookupError as error:
        print(error, file=sys.stderr)
        return 1
    return unfinished.main()


if __name__ == "__main__":
    sys.exit(main())
