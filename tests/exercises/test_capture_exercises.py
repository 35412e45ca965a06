"""Every exercise in captures: its solution, its wrong answers and its other right ones; no lesson
is played.
"""

import ast
import re
import sys
import time

import pytest
import torch

from course.lessons import lessons
from course.paths import lesson_name
from cpu_graph.device import Device
from cpu_graph.graphs import CUDAGraph
from exercises.answers import runs
from tests.support.answers import GIVEN, RIGHT, answers
from tests.support.captures import EXERCISES, PREDICTOR, SEEDS, each, verdict
from tests.support.machine import needs_gpu
from tests.support.notebooks import code


def held(monkeypatch, path, name, gpu, seeds=SEEDS):
    """seeds: those that right answers are tried with; wrong ones may need any."""
    said, asked = {}, answers(path, name, {})
    for kind, answer in asked.items():
        if "__for_show" in kind:
            continue  # the puzzles' own check replays once more, with other results
        right = kind == name or RIGHT in kind
        monkeypatch.setattr(runs, "SEEDS", seeds if right else SEEDS)
        outcome = verdict(monkeypatch, path, name, answer, gpu)
        assert bool(outcome) == right, f"{kind}: {outcome}"
        assert right or repr(outcome).startswith("✗"), outcome
        if not right:
            said[kind] = repr(outcome)
        if kind.endswith(GIVEN):
            assert not re.search("instead of [^ ]+$", repr(outcome)), f"no cause: {outcome}"
    assert sum(RIGHT in kind for kind in asked) >= 1, "a second right answer"
    assert len(set(said.values())) >= 3, f"three messages: {said}"
    return said


@each
def test_it_tells_right_from_wrong(monkeypatch, path, name):
    node, launched = Device.node, []
    monkeypatch.setattr(
        Device, "node", lambda *given, **options: launched.append(1) or node(*given, **options)
    )
    started = time.process_time()
    said = held(monkeypatch, path, name, gpu=False, seeds=SEEDS[:1])
    for kind, message in said.items():
        print(f"{kind}: {message}")
    print(f"{time.process_time() - started:.2f} s, {len(launched)} operators")
    assert len(launched) < 4000 * (len(said) + 2), "no reader waits for seconds"


@pytest.mark.weekly
@each
def test_right_answers_are_right_with_every_seed(monkeypatch, path, name):
    for kind, answer in answers(path, name, {}).items():
        if kind == name or RIGHT in kind:
            assert verdict(monkeypatch, path, name, answer, gpu=False), kind


@needs_gpu
@each
def test_it_says_the_same_where_there_is_a_gpu(monkeypatch, path, name):
    """Where answers are tried on both: what waits for what, and what a stale row holds, the GPU
    alone may not show.
    """
    held(monkeypatch, path, name, gpu=None)


@each
def test_its_stub_is_still_to_do(monkeypatch, path, name):
    stub = next(
        source for source in code(path) if re.search(rf"^def {name}\(", source, re.MULTILINE)
    )
    namespace = {"torch": torch}
    for node in ast.parse(stub).body:  # one by one, as IPython runs a cell
        exec(compile(ast.Module([node], []), "<stub>", "exec"), namespace)
    outcome = repr(verdict(monkeypatch, path, name, namespace[name]))
    assert outcome.startswith("○"), outcome


def quits():
    sys.exit("bye")


def not_written():
    raise NotImplementedError


def asks_for_memory():
    torch.cuda.memory_allocated()


def fails():
    raise ValueError("first\nsecond")


@pytest.mark.parametrize(
    ("raises", "said"),
    [
        (quits, "it raised SystemExit: bye"),
        (not_written, "not implemented yet: yours to write."),
        (
            asks_for_memory,
            "the stand-in cannot judge this. torch.cuda.memory_allocated is not modelled.",
        ),
        (fails, "it raised ValueError: first"),
    ],
)
def test_whatever_it_raises_is_a_sentence(monkeypatch, raises, said):
    def make_predictor(net, sample):
        return lambda inputs: raises()

    before = torch.get_rng_state()
    outcome = verdict(monkeypatch, *PREDICTOR, make_predictor)
    assert repr(outcome).startswith(f"✗ make_predictor: {said}")
    assert torch.equal(torch.get_rng_state(), before), "the notebook's random state stays"
    assert CUDAGraph.stand_in is None, "the stand-in is gone"


def test_the_reader_can_interrupt(monkeypatch):
    def make_predictor(net, sample):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt, match=r"interrupted \(at line \d+: raise KeyboardI"):
        verdict(monkeypatch, *PREDICTOR, make_predictor)
    assert CUDAGraph.stand_in is None


def test_an_empty_graph_is_told(monkeypatch):
    def make_predictor(net, sample):
        graph, result = torch.cuda.CUDAGraph(), net(sample)
        with torch.cuda.graph(graph):
            pass

        def predict(inputs):
            graph.replay()
            return result.clone()

        return predict

    said = repr(verdict(monkeypatch, *PREDICTOR, make_predictor))
    assert said.endswith("A graph is empty: its work is not inside of the capture.")


def test_every_lesson_from_the_first_capture_asks_for_one():
    order = [lesson_name(path) for path in lessons()]
    without = {*order[order.index("capture_and_replay") :]} - {
        lesson_name(path) for path, _ in EXERCISES
    }
    assert without <= {"repair_ten_scripts", "failure_gallery"}
    assert len(EXERCISES) >= 15
