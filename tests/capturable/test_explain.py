"""capturable.explain on the gallery's own messages, as recorded, on public reports, and on any
text at all."""

import io
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from capturable.causes import complaints, entries, find_causes, standard_cause_name
from capturable.explain import (
    TOLD,
    caveat,
    describe,
    explain,
    guess_causes,
    lesson_about,
    main,
    other_causes,
)
from capturable.similar_causes import nearest
from capturable.waiting_operators import WAITING
from course.exhibits import CUDA_ERRORS, index
from course.lessons import lesson_file, unnumbered
from course.paths import ROOT
from course.recordings.recording import find_recording
from tests.support.notebooks import prose
from tests.support.processes import run_python

SHOWN = find_recording("failure_gallery").value("exhibits")
LOUD = SHOWN[SHOWN.kind == "loud"]
RUNS = LOUD.message.str.startswith("nothing: ")  # the torch of the recording runs it
FAILS = LOUD[~RUNS]
SAID = FAILS.message.str.split("\n").str[0].combine_first(LOUD.says)  # row -> a first line
SECTION = re.compile(r"^### (.+?)\n\n(.+?)\n\n\*\*Fix\.\*\* (.+?)(?:\n\n|\Z)", re.M | re.S)
SECTIONS = SECTION.findall(prose(lesson_file("failure_gallery")))
HERE = Path(__file__).parent
REPORTS = json.loads((HERE / "reports.json").read_text(encoding="utf-8"))
HELD_OUT = json.loads((HERE / "held_out_reports.json").read_text(encoding="utf-8"))
TITLES = [entry.title for entry in entries()]
BY_TITLE = dict(zip(TITLES, entries(), strict=True))
EXHIBITS = [entry for entry in entries() if entry.exhibit]
DOUBT = "By its words, this may well be no failure of a CUDA graph."
MANY = ("several", "reasons")  # kinds of entries that say that a message has many causes
CAPTURING = "RuntimeError: CUDA error: operation not permitted when stream is capturing"


def first_title(text):
    return explain(text)[0].title


# ------------------------------------------------------------------ causes.json and the gallery


def test_an_exhibit_has_its_sections_name_and_lesson():
    assert list(entries()[: len(EXHIBITS)]) == EXHIBITS and len(EXHIBITS) >= 70
    assert [heading for heading, *_ in SECTIONS] == list(map(standard_cause_name, EXHIBITS))
    for entry, (*_, fix) in zip(EXHIBITS, SECTIONS, strict=True):
        lesson = re.search(r"Lesson: \[[^\]]+\]\(([^)]+)\)", fix)
        assert entry.lesson == (unnumbered(lesson[1]).removesuffix(".ipynb") if lesson else "")


def test_an_exhibit_has_the_text_that_the_lesson_expects():
    """And its name the number of its error."""
    for row in SHOWN.itertuples():
        entry = BY_TITLE[row.exhibit]
        assert row.says in entry.messages, row.exhibit
        number = re.findall(r", error (\d+)$", standard_cause_name(entry))
        assert all(CUDA_ERRORS.get(int(one), row.says) in entry.messages for one in number)


def test_an_exhibit_begins_with_what_one_sees():
    for exhibit, (_, text, _) in zip(EXHIBITS, SECTIONS, strict=True):
        assert text.startswith("**Symptom.** ")
        plain = re.sub(r"[*`]", "", text).lower()
        assert any(message.lower() in plain for message in exhibit.messages), exhibit.title


def test_entries_are_whole_and_their_own():
    assert len(entries()) - len(SECTIONS) >= 40 and len(set(TITLES)) == len(TITLES)
    assert len(set(map(standard_cause_name, entries()))) == len(TITLES)
    for entry in entries():
        assert entry.messages and entry.cause.endswith((".", ")")) and entry.fix
        assert re.compile(entry.place) and (entry.place or not entry.needs_place)
        assert not entry.lesson or lesson_file(entry.lesson).is_file(), "a name without a number"
        assert bool(lesson_about(entry)) == bool(entry.exhibit or entry.lesson)
        assert lesson_about(entry) in describe(entry)
    for many in (entry for entry in entries() if entry.kind in MANY):
        assert sum(bool(set(entry.messages) & set(many.messages)) for entry in entries()) > 2
    assert all(set(complaint.causes) <= set(TITLES) for complaint in complaints())


def test_the_index_links_every_exhibit_and_cuts_nothing():
    table = index(SHOWN).data
    for row in SHOWN.itertuples():
        heading = standard_cause_name(BY_TITLE[row.exhibit])
        assert f"[{heading}](#{heading.replace(' ', '-')})" in table
        assert SAID.get(row.Index, row.says).replace("|", " ").replace("<", "&lt;") in table
    assert table.count("\n") == len(SHOWN) + 1


# ------------------------------------------------------------------ what the gallery raised


@pytest.mark.parametrize("title", FAILS.exhibit)
def test_a_whole_traceback_finds_its_exhibit(title):
    """First, if the code or the text tells it apart; else it is named among the causes of that
    message."""
    first, *others = explain(LOUD.traceback[LOUD.exhibit == title].item())
    entry = BY_TITLE[title]
    alike = first.kind in MANY or set(first.messages) & set(entry.messages)
    assert first == entry or (entry in others and alike)


def test_most_tracebacks_name_their_exhibit_first():
    first = [first_title(row.traceback) == row.exhibit for row in FAILS.itertuples()]
    assert sum(first) >= 0.85 * len(first)
    assert RUNS.sum() <= 5 and not LOUD.traceback[RUNS].any()


@pytest.mark.parametrize("title", LOUD.exhibit)
def test_a_bare_message_names_its_exhibit(title, capsys):
    """Where the message has many causes, at most three are printed."""
    said = SAID[LOUD.exhibit == title].item()
    assert main([said]) == 0
    answer = capsys.readouterr().out
    first, *others = explain(said)
    assert standard_cause_name(BY_TITLE[title]) in answer or (
        first.kind in MANY and BY_TITLE[title] in others and answer.count("\n  ") <= 3 + TOLD
    )


def test_an_entry_is_found_by_its_own_messages():
    for entry in entries():
        for message in entry.messages:
            assert entry.needs_place or entry in explain(message), message
        if entry.kind == "silent":
            assert explain(f"After 100 steps {entry.messages[0]}, and no error")[0] == entry


# ------------------------------------------------------------------ public reports


def verdict(report):
    """right; several causes, guesses or a list, the right one among them; unknown; wrong, or a
    wrong guess.

    A text that is about no graph expects no cause: to be silent, or to doubt first, is right.
    """
    text, expected = report["text"], set(report["causes"])
    hits = find_causes(text)
    guessed, others = ({entry.title for entry in some} for some in guess_causes(text, hits))
    if not expected and (caveat(text, hits) or not (hits or guessed)):
        return "right"
    if hits and hits[0].entry.title in expected:
        return "right"
    if guessed & expected:
        return "guessed"
    if guessed:
        return "listed" if others & expected else "wrong guess"
    if not hits:
        return "unknown"
    listed = expected & {entry.title for entry in other_causes(text, hits)[:TOLD]}
    if hits[0].entry.kind in MANY:
        return "several" if listed else "wrong list"
    return "wrong"


@pytest.mark.parametrize(
    ("reports", "count", "answered"),
    [(REPORTS, 50, 35), ([one for one in HELD_OUT["reports"] if one["causes"]], 70, 53)],
    ids=["adjusted on", "held out"],
)
def test_public_reports_are_explained(reports, count, answered):
    verdicts = [verdict(report) for report in reports]
    known = [word for word in verdicts if word in ("right", "several", "guessed", "listed")]
    assert len(verdicts) == count and len(known) >= answered
    assert verdicts.count("wrong") <= 0.04 * count


def test_what_is_no_failure_of_a_graph_is_named_by_no_cause():
    verdicts = [verdict({"text": text, "causes": []}) for text in HELD_OUT["no_failures"]]
    assert "wrong" not in verdicts and len(verdicts) == 60
    assert verdicts.count("wrong guess") <= 3


# ------------------------------------------------------------------ single texts


FIRST = {  # the cause that is named first, by the lines near a message that has several
    f"    loss = total.item()\n{CAPTURING}": "A value read in a capture",
    f"    keep = scores.nonzero()\n{CAPTURING}": "A shape that depends on the data",
    "BackendCompilerFailed: backend='inductor' raised:\nRuntimeError: Cannot copy between CPU and "
    "CUDA tensors during CUDA graph capture unless the CPU tensor is pinned.": (
        "torch.compile: its first call is in a capture"
    ),
    'File "torch/_inductor/cudagraph_trees.py", line 1261, in run_graph\nRuntimeError: Cannot '
    "prepare for replay during capturing stage. Current cudaStreamCaptureStatus: Active": (
        "torch.compile: its graphs in a capture"
    ),
    "skipping cudagraphs due to mutated inputs (1 instances). Found": (
        "torch.compile skips graphs: an input is written"
    ),
    f'  File "rerun_state_machine.py", line 521, in validate_result\n    if rejected:\n{CAPTURING}': (
        "Megatron: a NaN check in a graph"
    ),
    "    start.elapsed_time(end)\nCUDA error: invalid argument": "A replay timed from inside",
    "Cannot call CUDAGeneratorImpl::current_seed during CUDA graph capture; activation "
    "checkpointing with preserve_rng_state=True and dropout": (
        "A random state that a checkpoint saves"
    ),
    "    torch.manual_seed(0)\nCannot call CUDAGeneratorImpl::current_seed during CUDA graph "
    "capture": "A seed set in a capture",
    "    static_x.copy_(x)\nRuntimeError: a leaf Variable that requires grad is being used in an "
    "in-place operation": "A static input that requires a gradient",
}


@pytest.mark.parametrize("text", FIRST)
def test_the_lines_near_a_message_name_its_cause(text):
    assert first_title(text) == FIRST[text]


GUESSED = {  # the cause that is guessed first, where a text complains in people's words
    "my loss never changes with a cuda graph": "A new tensor under the old name",
    "same dropout each time": "A dropout that is frozen",
    "CUDA graph replay is slower than eager": "No speed-up",
    "Two GPUs, tensor parallel: graph.replay() hangs": "A replay that never ends on one rank",
}


@pytest.mark.parametrize("text", GUESSED)
def test_the_usual_cause_of_a_complaint_is_guessed_first(text):
    assert nearest(text)[0].title == GUESSED[text]


def test_a_cause_of_one_product_is_guessed_only_where_the_text_names_it():
    said = "the NaN check asks a value of the loss in the captured graph"
    assert not [entry for entry in nearest(said) if entry.title.startswith("Megatron")]
    assert [entry for entry in nearest(f"Megatron: {said}") if "Megatron" in entry.title]


def test_a_cause_that_raises_is_not_guessed_where_nothing_was_raised():
    said = "Megatron with CUDA graphs: the loss becomes NaN after 80 iterations, no error is raised"
    assert nearest(said) and not [entry for entry in nearest(said) if entry.kind == "error"]


DOUBTED = [
    "CUDA error: an illegal memory access was encountered",
    "The size of tensor a (8) must match the size of tensor b (5) at non-singleton dimension 0",
    "CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate(handle)",
]


@pytest.mark.parametrize("text", DOUBTED)
def test_what_may_be_about_no_graph_is_answered_with_the_doubt_first(text, capsys):
    main([text])
    assert capsys.readouterr().out.startswith((DOUBT, "No message that is known"))


def test_there_is_no_doubt_where_the_text_tells_of_a_graph(capsys):
    main([LOUD.traceback[LOUD.exhibit == "A batch of another size"].item()])
    assert DOUBT not in capsys.readouterr().out


OTHERS = [
    "HTTP 900 items, 901 errors counted, room 905",
    "TypeError: 'dict' object is not callable\nmake: *** [graphs] Error 1",
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB",
    "The replays of the event stream show duplicated orders",
    "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED in the graph",
    "RuntimeError: CUDA error: device-side assert triggered in the graph branch",
    "what is this",
]


@pytest.mark.parametrize("text", OTHERS)
def test_nothing_is_guessed_about_something_else(text, capsys):
    assert main([text]) == 1 and explain(text) == []
    assert capsys.readouterr().out.endswith("this seems to be no failure of a CUDA graph.\n")


@pytest.mark.parametrize("code", [700, 900, 901, 906])
def test_a_bare_code_names_no_cause_and_lists_them(code, capsys):
    for text in (f"CUDA error {code}", f"code={code}", f"CUresult={code}", CUDA_ERRORS[code]):
        assert explain(text)[0].kind == "several"
    main([CUDA_ERRORS[code]])
    answer = capsys.readouterr().out
    assert "How to tell its causes apart:" in answer and answer.count(":") > 6


def test_the_operators_that_check_knows_are_known():
    names = {name.partition("::")[2].strip("_") for name in WAITING}
    elsewhere = {  # other causes tell of these, or they need arguments that a text does not show
        *("masked_fill", "index_fill", "mm", "mv", "bmm", "addmm", "sparse_addmm")
    }
    for name in names - elsewhere:
        text = f"    y = torch.{name.replace('linalg_', 'linalg.')}(x)\n{CAPTURING}"
        assert first_title(text) == "An operator whose kernel waits", name


def test_the_telling_line_is_found_wherever_it_stands():
    log = [f"INFO step {number} of 900" for number in range(3000)]
    log[1234] = "\x1b[31m(Worker) ERROR CUDA  error: capturing stream\x1b[0m has unjoined work"
    hit = find_causes("\n".join([*log, "Compile with `TORCH_USE_CUDA_DSA`"]))[0]
    assert hit.entry.title == "A fork that is never joined" and hit.number == 1234


def test_errors_come_before_warnings_and_first_errors_before_later_ones():
    lines = [
        "skipping cudagraphs due to mutated inputs",
        "captures_underway.empty() INTERNAL ASSERT FAILED",
        "capturing stream has unjoined work",
        "dependency created on uncaptured work in another stream",
    ]
    assert [entry.title for entry in explain("\n".join(lines))[:3]] == [
        "A fork that is never joined",
        "A wait for work outside",
        "An allocator that believes in a capture",
    ]


def test_an_error_at_the_end_of_a_capture_is_not_taken_for_its_cause():
    """As in pytorch issue 96632: what broke the capture stands above."""
    text = f"{CAPTURING}\n\nDuring handling of the above exception, another exception occurred:\n\n"
    text += "  super().capture_end()\nRuntimeError: Invalid capture."
    assert first_title(text) == "Error 900: the message names no cause"
    assert explain("RuntimeError: Invalid capture.")[0].kind == "several"
    assert first_title(f"    value = loss.item()\n{text}") == "A value read in a capture"


# ------------------------------------------------------------------ the command


def test_the_answer_says_cause_and_fix(capsys):
    assert main(["CUDA error: capturing stream has unjoined work"]) == 0
    title, cause, fix, more = capsys.readouterr().out.splitlines()
    assert title == "Unjoined side stream, error 904: A fork that is never joined"
    assert "side stream" in cause and "waits" in fix
    assert more.endswith("_failure_gallery.ipynb, Unjoined side stream, error 904")


def test_an_unknown_message_gets_what_is_like_it_and_status_1(capsys):
    assert main(["RuntimeError: Called CUDAGraph::replay without a capture"]) == 1
    answer = capsys.readouterr().out
    assert answer.startswith("No message that is known here.\n\nThese are guesses")
    assert "A replay before the capture" in answer


@pytest.mark.parametrize(
    ("text", "status"),
    [(f"step 1\n{CAPTURING}", "several"), ("replay before instantiate", "known"), ("x", "unknown")],
)
def test_it_speaks_json(text, status, capsys):
    main(["--json", text])
    said = json.loads(capsys.readouterr().out)
    assert said["status"] == status
    if status == "several":
        assert said["line"]["number"] == 2 and len(said["entries"]) > 10
    if status == "unknown":
        assert said == {"status": status, "caveat": "", "guesses": [], "others": []}


@pytest.mark.parametrize(
    "text", ["x" * 200_000, "error 900 " * 20_000, "(" * 50_000, "\n" * 50_000, "é\0 \x1b["]
)
def test_any_input_gets_an_answer(text):
    assert main(["--json", "message: " + text]) in (0, 1)


@pytest.mark.parametrize(
    ("text", "status"),
    [
        (b"capturing stream has unjoined work\n", 0),
        (b"\xff\xfe stream has unjoined work", 1),
        (b"\n", 2),
    ],
)
def test_it_reads_standard_input(monkeypatch, text, status):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
    assert main([]) == status


def test_it_runs_in_any_folder_with_the_standard_library_alone(tmp_path):
    code = "import sys; from capturable.explain import main; main(['stream has unjoined work']); "
    code += "sys.exit(bool({'torch', 'nbformat', 'pandas', 'course', 'helpers'} & {*sys.modules}))"
    answer = run_python("-c", code, folder=tmp_path, PYTHONPATH=str(ROOT))
    assert answer.returncode == 0, answer.stderr


def test_a_closed_pipe_gives_no_traceback():
    reader = subprocess.Popen(["head", "-c", "1"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    command = [sys.executable, "-m", "capturable.explain", "--json", "CUDA error 900"]
    writer = subprocess.run(
        command, stdout=reader.stdin, stderr=subprocess.PIPE, cwd=ROOT, check=False
    )
    reader.communicate()
    assert (writer.returncode, writer.stderr) == (0, b"")
