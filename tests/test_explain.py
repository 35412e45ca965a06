"""capturable.explain on the gallery's own messages, as recorded, and on error lines from public reports."""

import io
import subprocess
import sys

import pytest

from capturable import explain
from capturable.explain import find, gallery, index, main, nearest
from course.recording import NOTEBOOKS, REFERENCE_GPU, ROOT, TRACES, Recording

SHOWN = Recording.read(TRACES / REFERENCE_GPU / "failure_gallery.ipynb").value("exhibits")
LOUD = SHOWN[SHOWN.kind == "loud"]

# thread: the error line as it was reported there (with the line of code above it, where that was given), exhibit
REPORTS = {
    "InternLM/lmdeploy#2544": (
        "RuntimeError: CUDA error: operation not permitted when stream is capturing",
        "A value read in a capture",
    ),
    "pytorch/pytorch#78549": (
        "    count_all = count_all[mask]\nRuntimeError: CUDA error: operation not permitted when stream is capturing",
        "A shape that depends on the data",
    ),
    "kvcache-ai/ktransformers#784": (
        "RuntimeError: CUDA error: operation failed due to a previous error during capture",
        "Another thread in a capture",
    ),
    "deepseek-ai/DeepEP#62": (
        "Exception: Capture cuda graph failed: CUDA error: capturing stream has unjoined work",
        "A fork that is never joined",
    ),
    "pytorch/pytorch#102830": (
        "    result = Variable._execution_engine.run_backward(  # Calls into the C++ engine to run the backward pass\n"
        "RuntimeError: CUDA error: operation would make the legacy stream depend on a capturing blocking stream",
        "A gradient that remembers the default stream",
    ),
    "pytorch/pytorch#15623": (
        "    Variable._execution_engine.run_backward(\n"
        "RuntimeError: CUDA error: operation would make the legacy stream depend on a capturing blocking stream\n"
        "[W CUDAGraph.cpp:197] Warning: CUDA warning: "
        "operation not permitted when stream is capturing (function reset)",
        "A gradient that remembers the default stream",
    ),
    "pytorch/pytorch#99397": (
        "RuntimeError: CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`\n\n"
        "During handling of the above exception, another exception occurred:\n\n"
        "RuntimeError: CUDA error: operation failed due to a previous error during capture",
        "The first call of a library",
    ),
    "flagos-ai/FlagGems#4472": (
        "RuntimeError: Cannot copy between CPU and CUDA tensors during CUDA graph capture\n"
        "unless the CPU tensor is pinned. Please use tensor.pin_memory() or allocate the\n"
        "tensor with pin_memory=True.",
        "A copy from ordinary memory",
    ),
    "modelscope/ms-swift#8317": (
        "The AccumulateGrad node's stream does not match the stream of the node that produced the incoming gradient.",
        "A warning about AccumulateGrad",
    ),
    "pytorch/pytorch#149653": (
        "UserWarning: The CUDA Graph is empty. This usually means that the graph was attempted to be captured on "
        "wrong device or stream.",
        "A graph that is empty",
    ),
    "Lightning-AI/pytorch-lightning#18501": (
        "RuntimeError: Attempting CUDA graph capture of step() for an instance of AdamW",
        "Adam without capturable",
    ),
    "pytorch/pytorch#91950": (
        "RuntimeError: philox_cuda_state for an unexpected CUDA generator used during capture",
        "A generator that nobody announced",
    ),
    "Dao-AILab/flash-attention#165": (
        "RuntimeError: Cannot call CUDAGeneratorImpl::current_seed during CUDA graph capture. If you need this call "
        "to be captured, please file an issue.",
        "A seed set in a capture",
    ),
    "pytorch/pytorch#170604": (
        "RuntimeError: Error: accessing tensor output of CUDAGraphs that has been overwritten by a subsequent run.",
        "A result that is overwritten",
    ),
}


def test_every_exhibit_was_shown_and_mended_and_has_its_prose():
    assert len(SHOWN) >= 28 and SHOWN.mended.all()
    assert [exhibit.title for exhibit in gallery()] == SHOWN.exhibit.tolist()
    for exhibit in gallery():
        assert exhibit.cause and exhibit.mend and (NOTEBOOKS / exhibit.lesson).exists()
        assert exhibit.says[0] == SHOWN.says[SHOWN.exhibit == exhibit.title].item()


def test_it_tells_apart_what_has_different_messages():
    """One known text belongs to one exhibit, but for messages that CUDA or PyTorch gives for several causes."""
    for exhibit in gallery():
        alike = [other.title for other in gallery() if set(other.says) & set(exhibit.says)]
        assert alike == [exhibit.title] or exhibit.kind == "loud"


@pytest.mark.parametrize("title", LOUD.exhibit)
def test_a_whole_traceback_finds_its_exhibit(title):
    """First, if the code or the text tells it apart; else it is named among the causes of that message."""
    exhibit = next(exhibit for exhibit in gallery() if exhibit.title == title)
    found = find(LOUD.traceback[LOUD.exhibit == title].item())
    rivals = [other for other in gallery() if other.says[0] == exhibit.says[0]]
    first = found[0] == exhibit
    assert first if exhibit.where or exhibit == rivals[0] else exhibit in found and found[0] in rivals


@pytest.mark.parametrize("title", LOUD.exhibit)
def test_a_bare_message_names_its_exhibit(title, capsys):
    message = LOUD.message[LOUD.exhibit == title].item()
    assert main([message.splitlines()[0]]) == 0
    assert title in capsys.readouterr().out


@pytest.mark.parametrize("exhibit", [e for e in gallery() if e.kind == "silent"], ids=lambda exhibit: exhibit.title)
def test_a_symptom_finds_its_exhibit(exhibit):
    assert find(f"After 100 steps {exhibit.says[0]}, and no error")[0] == exhibit


@pytest.mark.parametrize("thread", REPORTS)
def test_a_public_report_finds_its_exhibit(thread):
    line, title = REPORTS[thread]
    assert find(line)[0].title == title


def test_a_line_of_code_decides_between_causes_of_one_message():
    message = "\nRuntimeError: CUDA error: operation not permitted when stream is capturing"
    assert find("    loss = total.item()" + message)[0].title == "A value read in a capture"
    assert find("    keep = scores.nonzero()" + message)[0].title == "A shape that depends on the data"
    assert find('  File "torch/optim/sgd.py", line 9, in f\n    lr.item()' + message)[0].title.startswith(
        "An optimizer"
    )


def test_the_answer_says_cause_mend_and_where_to_read(capsys):
    assert main(["CUDA error: capturing stream has unjoined work"]) == 0
    title, cause, mend, see, read = capsys.readouterr().out.splitlines()
    assert title == "A fork that is never joined" and "side stream" in cause and "waits" in mend
    assert see.endswith('13_failure_gallery.ipynb, under "A fork that is never joined"')
    assert (ROOT / read.split()[-1]).exists()


def test_an_unknown_message_gets_two_guesses_and_status_1(capsys):
    assert main(["RuntimeError: Called CUDAGraph::replay without success"]) == 1
    answer = capsys.readouterr().out
    assert answer.startswith("The gallery has no exhibit with this message.")
    assert "A replay before the capture" in answer and answer.count("cause:") == 2
    assert [len(nearest("nothing alike", count)) for count in (1, 2)] == [1, 2]


def test_a_message_that_names_no_capture_is_explained_with_a_reserve(capsys):
    main(["RuntimeError: The size of tensor a (8) must match the size of tensor b (5)"])
    assert "names no capture or graph" in capsys.readouterr().out
    main([LOUD.traceback[LOUD.exhibit == "A batch of another size"].item()])
    assert "names no capture or graph" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "status"), [("capturing stream has unjoined work\n", 0), ("what is this\n", 1), ("\n", 2)]
)
def test_it_reads_standard_input(monkeypatch, text, status):
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))
    assert main([]) == status


def test_it_runs_as_a_module_without_torch():
    code = "import sys; from capturable.explain import main; main(['unjoined']); sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, cwd=ROOT)


def test_the_index_links_every_exhibit_and_its_lesson():
    table = index(SHOWN).data
    for exhibit in gallery():
        assert f"[{exhibit.title}](#{exhibit.title.replace(' ', '-')})" in table
    assert table.count("\n") == len(gallery()) + 1
    assert "| RuntimeError: CUDA error" in table and "](03_capture_training_step.ipynb)" in table


def test_markup_stays_out_of_the_answer():
    for exhibit in gallery():
        text = explain.describe(exhibit)
        assert "](" not in text and "**" not in text and "Also seen as" not in text
