"""capturable.explain on the gallery's own messages, as recorded, on public reports, and on any
text at all."""

import ast
import io
import json
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from capturable.causes import complaints, entries, find, standard_name
from capturable.explain import TOLD, caveat, describe, explain, guesses, main, others_of, shown_in
from capturable.similar_causes import nearest
from capturable.waiting_operators import WAITING
from course.exhibits import CUDA_ERRORS, index
from course.lessons import lesson_file, unnumbered
from course.paths import NOTEBOOKS, ROOT
from course.recordings.recording import recorded_lesson

SHOWN = recorded_lesson("failure_gallery").value("exhibits")
LOUD = SHOWN[SHOWN.kind == "loud"]
RUNS = LOUD.message.str.startswith("nothing: ")  # the torch of the recording runs it
FAILS = LOUD[~RUNS]
SAID = FAILS.message.str.split("\n").str[0].combine_first(LOUD.says)  # row -> a first line
CELLS = nbformat.read(next(NOTEBOOKS.glob("*_failure_gallery.ipynb")), as_version=4).cells
SECTION = re.compile(r"^### (.+?)\n\n(.+?)\n\n\*\*Fix\.\*\* (.+?)(?:\n\n|\Z)", re.M | re.S)
SECTIONS = SECTION.findall(
    "\n\n".join(cell.source for cell in CELLS if cell.cell_type == "markdown")
)
HERE = Path(__file__).parent
REPORTS = json.loads((HERE / "reports.json").read_text(encoding="utf-8"))
HELD_OUT = json.loads((HERE / "held_out_reports.json").read_text(encoding="utf-8"))
TITLES = [entry.title for entry in entries()]
BY_TITLE = dict(zip(TITLES, entries(), strict=True))
MODULE = [sys.executable, "-m", "capturable.explain"]
DOUBT = "By its words, this may well be no failure of a CUDA graph."
MANY = ("several", "reasons")  # kinds of entries that say that a message has many causes


def exhibits_in_the_lesson():
    """Title and texts of every call of fails, silent and alone in the lesson's code."""
    known = {}
    for cell in (cell for cell in CELLS if cell.cell_type == "code"):
        tree = ast.parse(re.sub(r"\A%%.*", "", cell.source))
        calls = (
            node
            for node in ast.walk(tree)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        )
        for target, value in assignments(tree):
            known[target] = value
        for call in (call for call in calls if call.func.id in ("fails", "silent", "alone")):
            title, says = (constant(argument, known) for argument in call.args[:2])
            yield title, says if isinstance(says, tuple) else (says,)


def assignments(tree):
    """Names and the constants that are assigned to them, a = 1 and a, b = 1, 2 alike."""
    for node in (node for node in ast.walk(tree) if isinstance(node, ast.Assign)):
        target, value = node.targets[0], node.value
        both = isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple)
        for name, part in zip(target.elts, value.elts, strict=True) if both else [(target, value)]:
            if isinstance(name, ast.Name) and isinstance(part, ast.Constant | ast.Tuple):
                yield name.id, part


def constant(node, known):
    """The value of a constant, of a name of one, of an element or a tuple of them; else None."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        return constant(known.get(node.id), known)
    if isinstance(node, ast.Tuple):
        return tuple(constant(element, known) for element in node.elts)
    return (
        constant(node.value, known)[node.slice.value] if isinstance(node, ast.Subscript) else None
    )


def test_every_exhibit_is_an_entry_with_its_text():
    lesson = dict(exhibits_in_the_lesson())
    assert len(lesson) >= 70 and list(lesson) == TITLES[: len(lesson)]
    assert all(BY_TITLE[title].exhibit for title in lesson) and not any(
        e.exhibit for e in entries()[len(lesson) :]
    )
    for title, says in lesson.items():
        assert {CUDA_ERRORS.get(one, one) for one in says} <= set(BY_TITLE[title].messages), title


OWN_WORDS = {  # their sections speak of the code that they show
    "Another thread in a capture",
    "A gradient that remembers the default stream",
    "Autocast with its cache",
    "Out of memory with many graphs",
    "Memory that is gone",
    "Graphs replayed in another order",
    "A result read too soon",
}


def test_an_exhibit_says_what_its_section_says():
    """But for those whose section speaks of the code that it shows: an answer knows no such code."""
    shown = [entry for entry in entries() if entry.exhibit]
    assert [heading for heading, _, _ in SECTIONS] == list(map(standard_name, shown))
    for entry, (_, cause, fix) in zip(shown, SECTIONS, strict=True):
        lesson = re.search(r"Lesson: \[[^\]]+\]\(([^)]+)\)", fix)
        same = entry.cause == plain(cause.partition(" Also seen as: ")[0])
        same = same and entry.fix == plain(fix.partition(" Lesson: ")[0])
        assert same == (entry.title not in OWN_WORDS), entry.title
        assert entry.lesson == (unnumbered(lesson[1]).removesuffix(".ipynb") if lesson else "")


def test_a_name_has_the_number_of_its_error():
    """The number that the message stands for, and no other."""
    named = {
        e.title: re.findall(r", error (\d+)$", standard_name(e)) for e in entries() if e.exhibit
    }
    lesson = dict(exhibits_in_the_lesson())
    for title, numbers in named.items():
        coded = [str(one) for one in lesson[title] if isinstance(one, int)]
        assert numbers == coded[:1] or title == "A replay timed from inside", title


def test_an_answer_needs_no_course():
    words = (
        r"\b(our|ours|we|exhibit|gallery|lesson|notebook|capture_step|see below|this "
        r"process)\b|`captured`"
    )
    for entry in entries():
        said = f"{entry.cause} {entry.fix} {entry.tell} {standard_name(entry)}"
        assert not re.search(words, said), entry.title
        assert "course" not in said and ".ipynb" not in said, entry.title


def plain(markdown):
    return " ".join(re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", markdown).replace("*", "").split())


def test_entries_are_whole_and_their_own():
    assert len(entries()) - len(SECTIONS) >= 40 and len(set(TITLES)) == len(TITLES)
    assert len(set(map(standard_name, entries()))) == len(TITLES)
    for entry in entries():
        assert entry.messages and entry.cause.endswith((".", ")")) and entry.fix
        assert re.compile(entry.place) and (entry.place or not entry.needs_place)
        assert not entry.lesson or lesson_file(entry.lesson).is_file(), (
            "by its name, without a number"
        )
        assert "](" not in describe(entry) and "mend" not in describe(entry)


def test_what_shares_a_message_says_how_to_tell():
    for many in (entry for entry in entries() if entry.kind in MANY):
        alike = [
            entry
            for entry in entries()
            if entry != many and set(entry.messages) & set(many.messages)
        ]
        assert len(alike) >= 2 and all(entry.tell or entry.place or entry.cause for entry in alike)


def test_few_exhibits_have_no_traceback():
    assert RUNS.sum() <= 5 and not LOUD.traceback[RUNS].any()


@pytest.mark.parametrize("title", FAILS.exhibit)
def test_a_whole_traceback_finds_its_exhibit(title):
    """First, if the code or the text tells it apart; else it is named among the causes of that
    message."""
    found = explain(LOUD.traceback[LOUD.exhibit == title].item())
    assert title in [entry.title for entry in found]
    assert (
        found[0].title == title
        or found[0].kind in MANY
        or set(found[0].messages) & set(BY_TITLE[title].messages)
    )


def test_most_tracebacks_name_their_exhibit_first():
    first = [explain(row.traceback)[0].title == row.exhibit for row in FAILS.itertuples()]
    assert sum(first) >= 0.85 * len(first)


@pytest.mark.parametrize("title", LOUD.exhibit)
def test_a_bare_message_names_its_exhibit(title, capsys):
    """Where the message has many causes, at most three are printed."""
    said = SAID[LOUD.exhibit == title].item()
    assert main([said]) == 0
    answer = capsys.readouterr().out
    first, *others = explain(said)
    assert standard_name(BY_TITLE[title]) in answer or (
        first.kind in MANY and BY_TITLE[title] in others and answer.count("\n  ") <= 3 + TOLD
    )


@pytest.mark.parametrize(
    "entry", [e for e in entries() if e.kind == "silent"], ids=lambda entry: entry.title
)
def test_a_symptom_finds_its_exhibit(entry):
    assert explain(f"After 100 steps {entry.messages[0]}, and no error")[0] == entry


def verdict(report):
    """right; several causes, guesses or a list, the right one among them; unknown; wrong, or a
    wrong guess.

    A text that is about no graph expects no cause: to be silent, or to doubt first, is right.
    """
    text, expected = report["text"], set(report["causes"])
    hits = find(text)
    doubt = caveat(text, hits)
    guessed, others = (set(map(title_of, some)) for some in guesses(text, hits))
    if not expected and (doubt or not (hits or guessed)):
        return "right"
    first = title_of(hits[0].entry) if hits else ""
    if first in expected:
        return "right"
    if guessed:
        return next(
            (name for name, some in (("guessed", guessed), ("listed", others)) if some & expected),
            "wrong guess",
        )
    if not hits:
        return "unknown"
    listed = expected & {title_of(entry) for entry in others_of(text, hits)[:TOLD]}
    if hits[0].entry.kind in MANY:
        return "several" if listed else "wrong list"
    return "wrong"


def title_of(entry):
    return entry.title


def answered(verdicts):
    """How many answers hold the right cause."""
    return sum(word in ("right", "several", "guessed", "listed") for word in verdicts)


def test_public_reports_are_explained():
    verdicts = [verdict(report) for report in REPORTS]
    assert answered(verdicts) >= 0.7 * len(verdicts) and len(verdicts) == 50
    assert verdicts.count("wrong") <= 0.04 * len(verdicts)


def test_reports_that_were_held_out_are_explained():
    """Those whose cause is known: 53 of 70, 40 of them among the first three."""
    verdicts = [verdict(report) for report in HELD_OUT["reports"] if report["causes"]]
    assert answered(verdicts) >= 53 and len(verdicts) == 70
    assert verdicts.count("wrong") <= 0.04 * len(verdicts)


def test_what_is_no_failure_of_a_graph_is_named_by_no_cause():
    verdicts = [verdict({"text": text, "causes": []}) for text in HELD_OUT["no_failures"]]
    assert "wrong" not in verdicts and len(verdicts) == 60
    assert verdicts.count("wrong guess") <= 3


def test_reports_say_which_thread_they_are_from():
    threads = [report["thread"] for report in REPORTS + HELD_OUT["reports"] if report["thread"]]
    assert len(set(threads)) == len(threads) > 100
    titles = {title for report in REPORTS + HELD_OUT["reports"] for title in report["causes"]}
    assert titles <= set(TITLES)


def test_a_complaint_names_causes():
    assert all(set(one.causes) <= set(TITLES) for one in complaints())
    hang = "Two GPUs, tensor parallel: graph.replay() hangs"
    assert nearest(hang)[0].title == "A replay that never ends on one rank"


COMPLAINTS = {  # in people's words: the usual cause
    "the loss does not change": "A new tensor under the old name",
    "training loss does not change": "A new tensor under the old name",
    "my loss never changes with a cuda graph": "A new tensor under the old name",
    "same dropout mask": "A dropout that is frozen",
    "same dropout each time": "A dropout that is frozen",
    "the graph is slower than eager": "No speed-up",
    "CUDA graph replay is slower than eager": "No speed-up",
}


@pytest.mark.parametrize("said", COMPLAINTS)
def test_the_usual_cause_of_a_complaint_is_guessed_first(said):
    assert nearest(said)[0].title == COMPLAINTS[said]


def test_a_line_of_a_log_is_no_complaint():
    said = "torch.cuda.OutOfMemoryError: CUDA out of memory while loading checkpoint shards"
    assert nearest(said) == []


def test_a_cause_of_one_product_is_guessed_only_where_the_text_names_it():
    said = "the NaN check asks a value of the loss in the captured graph"
    assert not [entry for entry in nearest(said) if entry.title.startswith("Megatron")]
    named = nearest(f"Megatron: {said}")
    assert [entry for entry in named if entry.title.startswith("Megatron")]


NOISE = [
    "CUDA error: an illegal memory access was encountered",
    "The size of tensor a (8) must match the size of tensor b (5) at non-singleton dimension 0",
    "CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate(handle)",
    "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=3, OpType=ALLREDUCE)",
    "Inplace update to inference tensor outside InferenceMode is not allowed",
    "TypeError: 'dict' object is not callable\nmake: *** [graphs] Error 1",
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB",
    "onnxruntime: Non-zero status code returned while running Add node in the graph",
    "neo4j: The graph database is not available",
    "GraphQL error: Cannot query field stream on type Video",
    "OSError: capture device /dev/video0 is busy",
    "RuntimeError: Expected all tensors to be on the same device, but found cuda:0 and cpu!",
]


@pytest.mark.parametrize("text", NOISE)
def test_what_may_be_about_no_graph_is_answered_with_the_doubt_first(text, capsys):
    main([text])
    first = capsys.readouterr().out.splitlines()[0]
    assert first.startswith((DOUBT, "No message that is known"))


COMPILED = {
    "torch.compile: its first call is in a capture": "BackendCompilerFailed: backend='inductor' "
    "raised:\n"
    "RuntimeError: Cannot copy between CPU and CUDA tensors during CUDA graph capture unless the "
    "CPU tensor is pinned.",
    "torch.compile: its graphs in a capture": 'File "torch/_inductor/cudagraph_trees.py", line '
    "1261, in run_graph\n"
    "RuntimeError: Cannot prepare for replay during capturing stage. Current "
    "cudaStreamCaptureStatus: Active",
    "torch.compile: a graph break with fullgraph=True": "torch._dynamo.exc.Unsupported: "
    "Data-dependent branching",
    "torch.compile: too many versions of a function": "W0101 torch._dynamo hit config.recompile_limit (8)",
    "torch.compile skips graphs: an input is written": "skipping cudagraphs due to mutated inputs (1 instances). Found",
    "torch.compile skips graphs: something is on the CPU": "skipping cudagraphs due to cpu device (arg1_1). Found from",
    "torch.compile records a graph for every shape": "CUDAGraph supports dynamic shapes by recording a new graph",
}


@pytest.mark.parametrize("title", COMPILED)
def test_a_message_of_compiled_code_names_its_cause_first(title):
    assert explain(COMPILED[title])[0].title == title


def test_torch_names_a_compilation_in_a_capture_in_words_of_its_own():
    said = "torch.compile cannot JIT compile during CUDA graph capture."  # from torch 2.15 on
    for text in (said, f"{said} Execute warmup iterations outside of CUDA graph capture"):
        assert explain(text)[0].title == "torch.compile: its first call is in a capture"


def test_the_same_words_without_a_compiler_have_another_cause():
    first = [explain(COMPILED[title].splitlines()[1])[0].title for title in list(COMPILED)[:2]]
    assert first == ["A copy from ordinary memory", "A replay inside a capture"]


@pytest.mark.parametrize("code", [900, 901, 906])
def test_a_bare_code_names_no_cause_and_lists_them(code, capsys):
    for text in (f"CUDA error {code}", f"failed with code={code}", CUDA_ERRORS[code]):
        assert explain(text)[0].kind == "several"
    main([CUDA_ERRORS[code]])
    answer = capsys.readouterr().out
    assert "How to tell its causes apart:" in answer and answer.count(":") > 6


def test_a_line_of_code_decides_between_causes_of_one_message():
    message = "\nRuntimeError: CUDA error: operation not permitted when stream is capturing"
    assert explain("    loss = total.item()" + message)[0].title == "A value read in a capture"
    assert (
        explain("    keep = scores.nonzero()" + message)[0].title
        == "A shape that depends on the data"
    )
    frame = '  File "torch/optim/sgd.py", line 9, in f\n    lr.item()'
    assert explain(frame + message)[0].title == "An optimizer with a tensor for its learning rate"


MEGATRON = {
    "Megatron: a NaN check in a graph": '  File "rerun_state_machine.py", line 521, in validate_result\n'
    "    if result_rejected:\nAcceleratorError: CUDA error: operation not permitted when stream is capturing",
    "Megatron: a model built off the capture's stream": '  File "megatron/core/full_cuda_graph.py", line 232\n'
    "    FullCudaGraphWrapper.result[training_str] = self.forward_backward_func(\n"
    "CUDA error: operation would make the legacy stream depend on a capturing blocking stream",
    "Megatron: a random tracker without graphs": "register_generator_state(state)\n"
    "TypeError: expected a Generator, but got Tensor",
    "Megatron: graphs without Transformer Engine": "AssertionError: CUDA Graphs are not supported without TE.",
}


@pytest.mark.parametrize("title", MEGATRON)
def test_megatrons_messages_have_entries(title):
    assert explain(MEGATRON[title])[0].title == title


@pytest.mark.parametrize(
    "text",
    [
        "HTTP 900 items, 901 errors counted, room 905",
        "CUDA out of memory. Tried to allocate 2.00 MiB",
        "AttributeError: 'NoneType' object has no attribute 'wait'",
    ],
)
def test_what_is_no_failure_of_a_graph_stays_unknown(text):
    assert explain(text) == []


def test_the_telling_line_is_found_wherever_it_stands():
    boilerplate = ["CUDA kernel errors might be reported", "Compile with `TORCH_USE_CUDA_DSA`"]
    log = [f"INFO step {number} of 900" for number in range(3000)]
    log[1234] = (
        "\x1b[31m(Worker pid=7) ERROR RuntimeError: CUDA  error: capturing stream\x1b[0m has unjoined work"
    )
    hit = find("\n".join(log + boilerplate))[0]
    assert hit.entry.title == "A fork that is never joined" and hit.number == 1234


def test_errors_come_before_warnings_and_first_errors_before_later_ones():
    lines = [
        "skipping cudagraphs due to mutated inputs",
        "captures_underway.empty() INTERNAL ASSERT FAILED",
    ]
    lines += [
        "capturing stream has unjoined work",
        "dependency created on uncaptured work in another stream",
    ]
    kinds = [entry.title for entry in explain("\n".join(lines))]
    assert kinds[:3] == [
        "A fork that is never joined",
        "A wait for work outside",
        "An allocator that believes in a capture",
    ]


@pytest.mark.parametrize(
    "text", ["x" * 200_000, "error 900 " * 20_000, "(" * 50_000, "\n" * 50_000, "é\0 \x1b["]
)
def test_any_input_gets_an_answer(text):
    assert main(["--json", "message: " + text]) in (0, 1)


def test_the_answer_says_cause_and_fix(capsys):
    assert main(["CUDA error: capturing stream has unjoined work"]) == 0
    title, cause, fix, more = capsys.readouterr().out.splitlines()
    assert "_failure_gallery.ipynb" in more
    assert title == "Unjoined side stream, error 904: A fork that is never joined"
    assert "side stream" in cause and "waits" in fix


def test_an_unknown_message_gets_what_is_like_it_and_status_1(capsys):
    assert main(["RuntimeError: Called CUDAGraph::replay without a capture"]) == 1
    answer = capsys.readouterr().out
    assert (
        answer.startswith("No message that is known here.\n\nThese are guesses")
        and "A replay before the capture" in answer
    )
    assert main(["what is this"]) == 1 and "seems to be no failure" in capsys.readouterr().out
    assert nearest("nothing alike") == []


def test_a_message_that_names_no_capture_is_explained_with_a_reserve_ahead(capsys):
    main(["RuntimeError: The size of tensor a (8) must match the size of tensor b (5)"])
    assert capsys.readouterr().out.startswith(DOUBT)
    main(["CUDA error: an illegal memory access was encountered"])
    assert capsys.readouterr().out.startswith(DOUBT)
    main([LOUD.traceback[LOUD.exhibit == "A batch of another size"].item()])
    assert DOUBT not in capsys.readouterr().out


@pytest.mark.parametrize(
    "text",
    [
        "tensorflow.python.framework.errors_impl.InternalError: Graph execution error",
        "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED in the graph",
        "RuntimeError: Trying to backward through the graph a second time",
        "RuntimeError: CUDA error: device-side assert triggered in the graph branch",
    ],
)
def test_nothing_is_guessed_about_another_graph(text, capsys):
    assert main([text]) == 1
    assert capsys.readouterr().out.endswith("this seems to be no failure of a CUDA graph.\n")


def test_an_error_at_the_end_of_a_capture_is_not_taken_for_its_cause():
    """As in pytorch issue 96632: what broke the capture stands above."""
    text = "CUDA error: operation not permitted when stream is capturing\n\nDuring handling of the above exception, "
    text += "another exception occurred:\n\n  super().capture_end()\nRuntimeError: Invalid capture."
    assert explain(text)[0].title == "Error 900: the message names no cause"
    assert explain("RuntimeError: Invalid capture.")[0].kind == "several"
    read = "    value = loss.item()\n" + text
    assert explain(read)[0].title == "A value read in a capture"


def test_an_illegal_access_names_no_cause():
    found = explain("CUDAGraph replay: CUDA error: an illegal memory access was encountered")
    assert found[0].kind == "several"
    titles = {entry.title for entry in found}
    assert {
        "Memory that is gone",
        "A kernel with a bug of its own",
        "An index out of range",
    } <= titles
    assert explain("cuGraphLaunch failed: CUresult=700")[0] == found[0]


def test_it_speaks_json(capsys):
    main(
        [
            "--json",
            "step 1\nRuntimeError: CUDA error: operation not permitted when stream is capturing",
        ]
    )
    several = json.loads(capsys.readouterr().out)
    assert (
        several["status"] == "several"
        and several["line"]["number"] == 2
        and len(several["entries"]) > 10
    )
    main(["--json", "replay before instantiate"])
    assert json.loads(capsys.readouterr().out)["status"] == "known"
    main(["--json", "what is this"])
    assert json.loads(capsys.readouterr().out) == {
        "status": "unknown",
        "caveat": "",
        "guesses": [],
        "others": [],
    }


@pytest.mark.parametrize(
    ("text", "status"),
    [("capturing stream has unjoined work\n", 0), ("what is this\n", 1), ("\n", 2)],
)
def test_it_reads_standard_input(monkeypatch, text, status):
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))
    assert main([]) == status


def test_it_runs_in_any_folder_with_the_standard_library_alone(tmp_path):
    code = "import sys; from capturable.explain import main; main(['stream has unjoined work']);"
    code += "sys.exit(bool({'torch', 'nbformat', 'IPython', 'pandas', 'course', 'helpers'} & set(sys.modules)))"
    environment = {"PYTHONPATH": str(ROOT)}
    subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, cwd=tmp_path, env=environment
    )


def test_a_closed_pipe_gives_no_traceback():
    reader = subprocess.Popen(["head", "-c", "1"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    writer = subprocess.run(
        [*MODULE, "--json", "CUDA error 900"],
        stdout=reader.stdin,
        stderr=subprocess.PIPE,
        cwd=ROOT,
        check=False,
    )
    reader.communicate()
    assert (writer.returncode, writer.stderr) == (0, b"")


def test_bytes_that_are_no_text_are_read_and_no_message_is_a_wrong_call():
    answer = subprocess.run(
        MODULE,
        input=b"\xff\xfe stream has unjoined work",
        capture_output=True,
        cwd=ROOT,
        check=False,
    )
    assert answer.returncode == 1 and not answer.stderr
    assert (
        subprocess.run(MODULE, input=b" ", capture_output=True, cwd=ROOT, check=False).returncode
        == 2
    )
    wrong = subprocess.run(
        [*MODULE, "--wrong"], input=b"", capture_output=True, cwd=ROOT, check=False
    )
    assert wrong.returncode == 2 and b"usage:" in wrong.stderr


def test_the_index_links_every_exhibit_and_its_lesson_and_cuts_nothing():
    table = index(SHOWN).data
    for row in SHOWN.itertuples():
        heading = standard_name(BY_TITLE[row.exhibit])
        assert f"[{heading}](#{heading.replace(' ', '-')})" in table and row.exhibit in table
        assert SAID.get(row.Index, row.says).replace("|", " ").replace("<", "&lt;") in table
    assert table.count("\n") == len(SHOWN) + 1
    assert "| AcceleratorError: CUDA error" in table or "| RuntimeError: CUDA error" in table


@pytest.mark.parametrize(
    "said",
    [
        "CUDA error: invalid argument\ncooperative kernel in a conditional node of the graph",
        "cudaErrorInvalidValue in cudaGraphInstantiate",
    ],
)
def test_a_code_that_names_no_cause_says_so(said):
    first, *others = explain(said)
    assert first.title == "Invalid argument: the message names no cause" and len(others) > 1
    timed = "    start.elapsed_time(end)\nCUDA error: invalid argument"
    assert explain(timed)[0].title == "A replay timed from inside"


def test_a_guess_needs_a_second_word_of_the_field():
    assert nearest("The capture session could not be initiated on interface 'eth0'") == []
    assert nearest("The replays of the event stream show duplicated orders") == []
    assert nearest("the captured model replays on cuda:1 and fails, on cuda:0 it works")


def test_a_driver_that_is_too_old_is_no_failure_of_a_graph():
    for said in ("CUDA failure! 35", "Failed to dlopen libcuda.so.1"):
        assert explain(said)[0].title == "A CUDA that does not start"


def test_an_answer_says_where_the_course_shows_it():
    for entry in entries():
        assert bool(shown_in(entry)) == bool(entry.exhibit or entry.lesson)
        assert shown_in(entry) in describe(entry)
    frozen = BY_TITLE["A number that is frozen"]
    assert shown_in(frozen).endswith("_failure_gallery.ipynb, Frozen Python number")


def test_the_operators_that_check_knows_are_known():
    said = "CUDA error: operation not permitted when stream is capturing"
    names = {name.partition("::")[2].strip("_") for name in WAITING}
    elsewhere = {  # other causes tell of these, or they need arguments that a text does not show
        *("masked_fill", "index_fill", "mm", "mv", "bmm", "addmm", "sparse_addmm"),
    }
    for name in names - elsewhere:
        first = explain(f"    y = torch.{name.replace('linalg_', 'linalg.')}(x)\n{said}")[0]
        assert first.title == "An operator whose kernel waits", name


def test_a_random_state_of_a_checkpoint_is_no_seed():
    said = "Cannot call CUDAGeneratorImpl::current_seed during CUDA graph capture"
    saved = f"{said}; activation checkpointing with preserve_rng_state=True and dropout"
    assert explain(saved)[0].title == "A random state that a checkpoint saves"
    assert explain(f"    torch.manual_seed(0)\n{said}")[0].title == "A seed set in a capture"
    title = "A static input that requires a gradient"
    leaf = "a leaf Variable that requires grad is being used in an in-place operation"
    assert explain(f"    static_x.copy_(x)\nRuntimeError: {leaf}")[0].title == title


def test_a_cause_that_raises_is_not_guessed_where_nothing_was_raised():
    said = "Megatron with CUDA graphs: the loss becomes NaN after 80 iterations, no error is raised"
    assert nearest(said) and not [entry for entry in nearest(said) if entry.kind == "error"]
