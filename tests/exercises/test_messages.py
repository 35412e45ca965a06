"""When a check says what: a repair's cause only from the third wrong run on, of an untouched
function that it is untouched, and nothing of a cell that was not run.
"""

import sys
from types import SimpleNamespace

import pytest
import torch

from course.lesson import LessonSession
from course.lessons import lesson_file
from cpu_graph import cpu_graphs
from exercises.answers import solutions
from exercises.answers.graph_use import require_no_freed_reads
from exercises.answers.tensors import are_close, are_equal, describe_first_difference
from exercises.answers.wrong import Wrong
from exercises.checks import check_capture
from tests.support.notebooks import code

LESSON = "capture_and_replay"
SYMPTOM, REPAIR = "Every result is the last one.", "Clone each."


@pytest.fixture(autouse=True)
def opened(monkeypatch):
    lesson = LessonSession(LESSON, live=False)
    monkeypatch.setattr(solutions, "current", lambda: lesson)
    solutions.wrong_runs.clear()


def published(name):
    source = next(source for source in code(lesson_file(LESSON)) if f"def {name}(" in source)
    namespace = {"torch": torch}
    exec(source, namespace)
    return namespace[name]


def judged(answer, scenario):
    return repr(check_capture(answer, scenario, gpu=False))


def wrong(answer):
    answer()
    raise Wrong(SYMPTOM, REPAIR)


def test_the_cause_of_a_repair_comes_with_the_third_wrong_run():
    def make_scaled_predictor():
        return 1

    said = [judged(make_scaled_predictor, wrong) for _ in range(3)]
    assert said[0] == said[1] == f"✗ make_scaled_predictor: {SYMPTOM}"
    assert said[2] == f"✗ make_scaled_predictor: {SYMPTOM} {REPAIR}"
    judged(make_scaled_predictor, lambda answer: answer())
    assert REPAIR not in judged(make_scaled_predictor, wrong), "right once, it begins anew"


def test_of_a_function_to_write_the_cause_comes_at_once():
    def make_predictor():
        return 1

    assert judged(make_predictor, wrong).endswith(REPAIR)


def test_an_untouched_function_is_told_so_and_not_run():
    found = judged(published("make_scaled_predictor"), wrong)
    assert found == "○ make_scaled_predictor is as the lesson gives it: yours to change."


def test_a_cell_that_is_not_python_is_told(monkeypatch):
    cells = ["def make_predictor(): return 1", "def make_predictor():\n    return (1"]
    shell = SimpleNamespace(
        history_manager=SimpleNamespace(input_hist_raw=cells), transform_cell=lambda cell: cell
    )
    monkeypatch.setattr(solutions, "get_ipython", lambda: shell)

    def make_predictor():
        return 1

    assert "is not valid Python (line 2" in judged(make_predictor, lambda answer: answer())
    cells.append("def make_predictor(): return 1")
    assert judged(make_predictor, lambda answer: answer()).startswith("✓")


def test_what_an_answer_changes_for_the_process_is_undone():
    def make_predictor():
        torch.set_default_dtype(torch.float64)
        torch.set_grad_enabled(False)
        sys.stdout.close()
        sys.stderr.close()
        return 1

    assert judged(make_predictor, lambda answer: answer()).startswith("✓")
    assert torch.get_default_dtype() == torch.float32 and torch.is_grad_enabled()
    print("still open")


def test_memory_that_tensors_take_is_told_as_any_other():
    def make_predictor():
        return torch.ones(2**33)

    assert "it took more than 4 GiB of memory" in judged(make_predictor, lambda answer: answer())


def test_a_wrong_result_is_told_by_its_first_number():
    right = [torch.zeros(2, 3), torch.ones(2)]
    yours = [torch.zeros(2, 3), torch.ones(2)]
    yours[0][1, 2] = 1e-3
    assert describe_first_difference([yours], [right]) == (
        "Result 1 differs from the eager one: its tensor 1 of 2 holds 0.001 at [1, 2] instead of 0."
    )
    assert describe_first_difference([torch.ones(2)], [torch.ones(3)]).endswith(
        "has the shape (2,) instead of (3,)."
    )


def test_equal_is_bitwise_and_close_is_not():
    one = torch.tensor([1.0, float("nan")])
    assert are_equal(one, one.clone()) and not are_close(one, one.clone())
    assert not are_equal(torch.tensor(1.0), torch.tensor(1.0 + 1e-7)) and are_equal([], [])
    assert not are_equal(torch.tensor(1), torch.tensor(1.0))


def test_of_memory_whose_tensor_is_gone_the_reader_is_told():
    with cpu_graphs():
        graph = torch.cuda.CUDAGraph()
        x = torch.ones(4, device="cuda")
        with torch.cuda.graph(graph):
            2 * x
        del x
        graph.replay()
        with pytest.raises(Wrong, match="In the graph, mul reads memory whose tensor is gone"):
            require_no_freed_reads()


def test_nan_is_named_as_what_a_capture_leaves_behind():
    nan, two = torch.tensor([1.0, float("nan")]), torch.tensor([1.0, 2.0])
    said = "Result 1 differs from the eager one: it holds nan at [1] instead of 2, and nan is what "
    assert describe_first_difference([nan], [two]).startswith(said)
    assert "nan" not in describe_first_difference([two], [nan + 1]).partition("instead of nan")[2]
