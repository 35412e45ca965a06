"""python -m trace_report: what it prints, writes and returns, and what it needs."""

import json
import re
import shutil
import subprocess
import sys
import tomllib
from html import unescape
from shlex import quote

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from PIL import Image

from course.paths import ROOT
from course.recordings.recording import find_recording
from tests.support.pictures import data_of
from tests.support.processes import IGNORED, build_archive, run_python
from tests.support.traces import event, kernel, launch, step
from trace_report.__main__ import MOST_DRAWN, main
from trace_report.chart import draw_trace_report, median_step_timelines, time_bars
from trace_report.lanes import COLOURS
from trace_report.names import read_named
from trace_report.page import page
from trace_report.step_view import MOST, shown_step, trace_of_one_step
from trace_report.trace import read_trace
from trace_report.units import in_words


@pytest.fixture(scope="module")
def files():
    """A step that waits for the CPU, and one whose batch is so large that the GPU always works."""
    recording = find_recording("profile_eager_training")
    return [f"eager={recording.trace('eager')}", f"graph={recording.trace('large_batch')}"]


@pytest.fixture
def no_gpu(write_trace):
    """Two steps of a host with a range and two operators, of which one lies in the range."""
    forward = event("user_annotation", "## forward ##", 10, 40)
    backward = event("cpu_op", "autograd::engine::evaluate_function: AddmmBackward0", 60, 30)
    inside = event("cpu_op", "aten::mm", 20, 10)
    median_step_timelines = [step(0, 0, 100), step(1, 100, 100)]
    return write_trace(*median_step_timelines, forward, inside, backward, name="host.pt.trace.json")


def test_json_is_the_summary_and_the_verdict(files, capsys):
    assert main([*files, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    trace = read_trace(files[0].partition("=")[2])
    assert list(said) == ["eager", "graph"] and said["eager"]["verdict"] == trace.verdict()
    assert said["eager"]["summary"] == trace.summary().to_dict()
    assert [one["bound"] for one in said.values()] == ["CPU-bound", "GPU-bound"]


@pytest.mark.parametrize(
    ("limit", "status", "words"),
    [
        ("95%", 0, ""),
        ("0.5", 1, r"trace_report: eager: the GPU is idle for \d\d\.\d% of a step, more than 50%"),
        ("1%", 1, r"(?s)eager: the GPU .*graph: the GPU is idle for \d"),
    ],
)
def test_an_idle_gpu_fails_on_demand(files, limit, status, words, capsys):
    assert main([*files, "--fail-if-idle", limit]) == status
    assert re.search(words, capsys.readouterr().err)


def test_without_a_verdict_nobody_can_say_that_the_gpu_is_busy(no_gpu, capsys):
    assert main([str(no_gpu)]) == 0
    assert main([str(no_gpu), "--fail-if-idle", "20%"]) == 2
    assert capsys.readouterr().err == "trace_report: host gives no verdict.\n"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--fail-if-idle", "120%"], "'120%' is no share such as 20% or 0.2"),
        (["--fail-if-idle", "some"], "'some' is no share"),
        (["--chart", "report.pdf"], "'report.pdf' ends with neither .png nor .html"),
        (["--html", "eager.json"], "'eager.json' ends with neither .png nor .html"),
    ],
)
def test_a_wrong_option_is_named(files, options, words, capsys):
    with pytest.raises(SystemExit, match="2"):
        main([*files, *options])
    assert words in capsys.readouterr().err


def test_a_report_that_cannot_be_written_is_one_sentence(files, tmp_path, capsys):
    for option, name in (("--html", "missing/report.html"), ("--chart", "missing/report.png")):
        assert main([*files, option, str(tmp_path / name)]) == 2
        assert capsys.readouterr().err == (
            f"trace_report: {tmp_path / name}: No such file or directory.\n"
        )


def test_traces_are_called_like_their_files(write_trace, tmp_path):
    events = [step(0, 0, 100), launch(1, 1), kernel(5, 10, 1)]
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
    digests = [write_trace(*events, name=f"{name}.json") for name in ("new-83b5ea649e05", "old-12")]
    assert list(read_named([*map(str, digests)])) == ["new", "old-12"]
    twins = [write_trace(*events, name=f"new-{n}3b5ea649e05.json") for n in (1, 2)]
    assert list(read_named([*map(str, twins)])) == ["new-13b5ea649e05", "new-23b5ea649e05"]
    names = ("eager.pt.trace.json.gz", "a/one.json", "b/one.json", "x=y.json")
    paths = [write_trace(*events, name=name) for name in names]
    named = read_named([*map(str, paths), f"mine={paths[0]}", str(paths[1])])
    assert list(named) == ["eager", "a/one", "b/one", "x=y", "mine", "a/one again"]


# The step that is shown


def test_the_step_that_is_shown_is_the_median_one_with_its_own_work(read_events):
    """Also where the GPU does that work after the host's step, and other work meanwhile."""
    events = []
    for n, (begin, busy) in enumerate([(0, 100), (20, 90), (40, 300), (60, 100)]):
        events += [step(n, begin, 20), launch(begin + 5, n)]
        events.append(kernel([30, 130, 220, 520][n], busy, n))
    trace = read_events(*events)
    assert trace.spans().end_us.diff().tolist()[1:] == [300, 100] and shown_step(trace) == 3
    alone, _ = trace_of_one_step(trace, 3)
    assert alone.gpu[alone.gpu.step == 0].start_us.tolist() == [520]
    others = alone.gpu[alone.gpu.step < 0]
    assert others.start_us.tolist() == [60, 130, 220] and others.end_us.tolist() == [130, 220, 520]
    said = "Pale: what other steps launched."
    title = median_step_timelines({"made": trace}).get_suptitle()
    assert title.replace("\n", " ").endswith(said) and said in page({"made": trace})


def test_a_step_of_many_events_is_shown_whole_in_bins(write_trace):
    """A bar is as long as what ran in its bin, so the picture is as full as the step."""
    launches = [launch(3 * n, n) for n in range(MOST)]
    work = [kernel(3 * n + 10, 2, n) for n in range(MOST)]
    path = write_trace(step(0, 0, 3 * MOST), *launches, *work)
    traces = read_named([str(path)])
    alone, events = trace_of_one_step(traces["trace"], 0)
    assert events == 2 * MOST and len(alone.launches) + len(alone.gpu) < MOST
    assert alone.gpu.dur_us.sum() == pytest.approx(2 * MOST)
    assert alone.gpu.end_us.max() == pytest.approx(3 * MOST + 9, abs=25)  # the width of a bin
    html = page(traces)
    assert f"trace: ProfilerStep#0, its {2 * MOST} events in bins: a bar is as long" in html
    ((_, bars),) = data_of(html)["variants"]
    assert len(bars) < MOST and len(html) < 1e6


def test_operators_are_ranges_where_there_are_no_others(no_gpu):
    trace = read_trace(no_gpu, needs_gpu=False)
    alone, _ = trace_of_one_step(trace, 0)
    assert alone.annotations.name.str.strip("# ").to_list()[0] == "forward"
    assert len(alone.annotations) == 2, "the product lies in the forward pass"


def test_nothing_of_the_users_is_overwritten(write_trace, tmp_path, capsys):
    events = [step(0, 0, 100), launch(1, 1), kernel(5, 10, 1)]
    trace, notes = write_trace(*events, name="trace.html"), tmp_path / "notes.png"
    notes.write_text("mine")
    linked = tmp_path / "link.html"
    linked.symlink_to(trace)
    for option, path, words in (
        ("--html", trace, "is one of the traces"),
        ("--html", linked, "is one of the traces"),
        ("--chart", notes, "is another kind of file"),
    ):
        before = path.read_bytes()
        with pytest.raises(SystemExit, match="2"):
            main([f"mine={trace}", option, str(path)])
        assert words in capsys.readouterr().err and path.read_bytes() == before
    page = tmp_path / "report.html"
    assert [main([str(trace), "--html", str(page)]) for _ in range(2)] == [0, 0]


def test_many_traces_are_judged_and_hundreds_are_not_drawn(write_trace, capsys):
    path = write_trace(step(0, 0, 100), launch(1, 1), kernel(5, 10, 1))
    assert main([str(path)] * (MOST_DRAWN + 1)) == 0
    assert len(capsys.readouterr().out.splitlines()) == MOST_DRAWN + 1
    with pytest.raises(SystemExit, match="2"):
        main([str(path)] * 300 + ["--chart", "report.png"])
    assert "300 traces are too many to draw: give at most 20" in capsys.readouterr().err


@pytest.mark.parametrize("output", ["| true", "> /dev/full", ">&-"])
def test_the_command_ends_quietly_where_nobody_reads(write_trace, output):
    path = write_trace(step(0, 0, 9), launch(1, 1), kernel(2, 3, 1))
    python, file = quote(sys.executable), quote(str(path))
    command = f"set -o pipefail; {python} -m trace_report {file} {output}"
    run = subprocess.run(["bash", "-c", command], capture_output=True, cwd=ROOT)
    assert run.stderr == b"" and run.returncode in (0, 2)


# The picture and the page


def colours_of(path):
    pixels = np.asarray(Image.open(path).convert("RGB"))
    return {tuple(colour) for colour in np.unique(pixels.reshape(-1, 3), axis=0)}


def colour(lane):
    return tuple(round(255 * part) for part in to_rgb(COLOURS[lane]))


def test_a_trace_without_a_gpu_has_a_chart_of_the_host(no_gpu, tmp_path, capsys):
    picture, html = tmp_path / "host.png", tmp_path / "host.html"
    assert main([str(no_gpu), "--chart", str(picture), "--html", str(html)]) == 0
    assert capsys.readouterr().out == (
        "host: No verdict: it holds no GPU activity, so record ProfilerActivity.CUDA, on a "
        "machine with a GPU.\n"
    )
    assert colour("host time") in colours_of(picture)
    assert colour("GPU busy time") not in colours_of(picture)
    text = html.read_text()
    assert "GPU busy" not in text.partition("</style>")[2] and ">AddmmBackward0</th>" in text


CODE = """'"></figure><script>alert(1)</script>&amp;{policy}"""
STRANGE = ["a$\\frac{$", "$x$ and $y$", "<b>'\"&amp;", "a" * 200, "名前 µ", CODE]


@pytest.mark.parametrize("name", STRANGE)
def test_strange_names_have_a_picture(read_events, tmp_path, name):
    ranged = event("user_annotation", name, 1, 50)
    trace = read_events(step(0, 0, 100), ranged, launch(5, 1), kernel(9, 5, 1))
    draw_trace_report({name: trace, "plain": trace}, tmp_path / "strange.png")
    html = page({name: trace})
    assert data_of(html)["variants"][0][0] == name
    assert html.count("<script>") == 1 and name in unescape(html), "it cannot become code"


@pytest.mark.parametrize(
    ("events", "end_us"),
    [
        ([step(0, 0, 0), launch(0, 1) | {"dur": 0}, kernel(0, 0, 1)], 1),
        ([*(step(n, 100 * n, 100) for n in range(5)), launch(410, 1), kernel(420, 9, 1)], 29),
        ([step(0, 0, 100), step(1, 100, 100), launch(10, 1), kernel(20, 5, 1), launch(300, 2)], 25),
    ],
    ids=["no length", "events in the last step only", "a launch after the steps"],
)
def test_steps_of_no_length_or_without_events_are_drawn(read_events, tmp_path, events, end_us):
    trace = read_events(*events)
    draw_trace_report({"odd": trace}, tmp_path / "odd.png")
    html = page({"odd": trace})
    assert data_of(html)["end"] == end_us and "NaN" not in html


def test_a_trace_of_marks_alone_has_a_report(write_trace, tmp_path):
    picture, html = tmp_path / "marks.png", tmp_path / "marks.html"
    path = write_trace(step(0, 0, 100))
    assert main([str(path), "--chart", str(picture), "--html", str(html)]) == 0
    assert picture.exists() and "100 µs</td>" in html.read_text()


def test_without_a_sound_clock_no_time_is_shown(write_trace, capsys):
    path = write_trace(step(0, 0, 100), launch(50, 1), kernel(20, 10, 1))
    html = page(read_named([str(path)]))
    assert "the GPU's clock is off" in unescape(html) and "µs</td>" not in html
    assert main([str(path), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)["trace"]
    assert said["bound"] is None and set(said["summary"].values()) == {None}


def test_the_page_says_what_the_trace_says(files, tmp_path):
    path = tmp_path / "report.html"
    assert main([*files, "--html", str(path)]) == 0
    html, traces = path.read_text(), read_named(files)
    for name, trace in traces.items():
        assert f"<b>{name}</b>: {trace.verdict()}" in unescape(html)
        assert f"{in_words(trace.summary().step_us)}</td>" in html
    assert [name for name, _ in data_of(html)["variants"]] == ["eager", "graph"]
    assert len(html) < 85_000
    assert set(re.findall(r"https?://[\w./]+", html)) == {"http://www.w3.org/2000/svg"}
    assert "default-src 'none'" in html


def test_every_number_that_is_shown_is_that_of_the_trace(read_events, tmp_path, capsys):
    """Of four steps, counted by hand: text, JSON, both tables of the page, and the chart."""
    events = []
    for n in range(4):
        events += [step(n, 100 * n, 100), launch(100 * n + 10, n), kernel(100 * n + 20, 30, n)]
        events.append(event("cuda_runtime", "cudaDeviceSynchronize", 100 * n + 60, 20))
    trace = read_events(*events)
    cells = {
        "step": "100 µs",
        "GPU busy": "30 µs",
        "GPU idle": "70%",
        "host time, at most": "80 µs",
        "of it in launch calls": "1 µs",
        "host waits for the GPU": "20 µs",
        "idle before the first launch": "10 µs",
        "launches": "1",
        "kernels": "1",
        "steps": "4",
        "of these, in steady state": "3",
    }
    html = page({"made": trace})
    assert dict(re.findall(r'<th scope="row">([^<]+)</th><td>([^<]*)</td>', html)) == cells
    bars = re.findall(r'row">([^<]+)</th><td><span style="width:([\d.]+)%;background:(#\w+)', html)
    lanes = {"host time": "52.0", "GPU busy time": "19.5", "step time": "65.0"}
    assert bars == [(lane, width, COLOURS[lane]) for lane, width in lanes.items()]
    axes = time_bars({"made": trace}).axes[0]
    drawn = [(container.get_label(), container[0].get_width()) for container in axes.containers]
    assert drawn == [("host time", 80), ("GPU busy time", 30), ("step time", 100)]
    assert [text.get_text() for text in axes.texts] == ["80 µs", "30 µs", "100 µs"]
    assert axes.figure.get_suptitle() == "The GPU idles for 70% of 100 µs (made)."
    assert main([str(trace.path), "--numbers"]) == 0
    *table, verdict = capsys.readouterr().out.splitlines()
    assert [line.split("  ")[0] for line in table[1:]] == list(cells)
    assert [re.split("  +", line)[-1] for line in table[1:]] == list(cells.values())
    assert "is idle for 70% of a traced step of 100 µs; the first of 4 steps" in verdict
    assert verdict.endswith("one of the whole step could save at most 70 µs (3.3x).")


# What it needs


def test_the_package_installs_by_itself(files, tmp_path):
    """From its sdist, without torch, beside somebody's own helpers.py."""
    copy = tmp_path / "copy" / "trace_report"
    shutil.copytree(ROOT / "trace_report", copy, ignore=IGNORED)
    shutil.unpack_archive(build_archive("sdist", copy), tmp_path / "sdist", filter="data")
    (sources,) = (tmp_path / "sdist").iterdir()
    there = tmp_path / "there"
    shutil.unpack_archive(build_archive("wheel", sources), there, "zip")
    assert not (there / "helpers").exists()
    (there / "helpers.py").write_text("raise AssertionError('another helpers')")
    needs = tomllib.loads((ROOT / "trace_report/pyproject.toml").read_text())["project"]
    found = {re.match(r"\w+", need)[0] for need in needs["dependencies"]}
    assert found == {"matplotlib", "numpy", "pandas"}
    code = "import sys; sys.modules['torch'] = None; import trace_report; print(trace_report)"
    code += "; from trace_report.__main__ import main; main()"
    html = tmp_path / "report.html"
    outputs = ["--html", str(html), "--chart", str(tmp_path / "report.png")]
    done = run_python("-c", code, *files, *outputs, folder=there)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    assert str(there / "trace_report") in done.stdout.splitlines()[0]
    assert "figure.timeline" in html.read_text()
