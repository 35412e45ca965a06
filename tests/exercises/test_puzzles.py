"""The puzzles: their form, what the picture of an answer shows, and that they need no course."""

import re
from xml.etree import ElementTree

import pytest
import torch

from course.lessons import PUZZLES, lesson_file, lessons
from course.paths import NOTEBOOKS
from course.recordings.cells import checks_in
from cpu_graph import cpu_graphs
from cpu_graph.picture import NONE, picture
from docs.puzzles import PICTURES, puzzle_svgs
from exercises.puzzles import NO_PUZZLE, check_capture
from tests.support.answers import RIGHT, answers
from tests.support.notebooks import cells, code
from tests.support.processes import run_python

PATH = lesson_file(PUZZLES)
NAMES = [name for source in code(PATH) for _, name in checks_in(source)]
HOLE = 8
SHOWS = {  # of wrong answers: what the picture says is wrong
    "ten_times__not_called": "no replay has written it",
    "keep_results__no_clone_in_results_append_static_y_clone": "overwrites what nobody has read",
    "count_up__not_undone": "changes what the graph goes on from",
    "count_up__rebound": "reads memory that was freed",
    "losses_of__no_clone_in_losses_append_loss_clone": "reads what was overwritten",
    "on_two_streams__drop_torch_cuda_current_stream_wait_stream_side": (
        "is on a stream that was not joined"
    ),
    "on_two_streams__joined_too_late": "races with a node of another stream",
    "losses_of__read_each_time": "the CPU waits here",
    "losses_of__pinned_without_a_wait": "reads before the copy has ended",
    "make_ten_times__for_show": "its results are not used",
    "keep_results__the_input": "is expected",
    "make_noisy__before_the_capture": "randn_like() reads the same input again",
    "sum_of_gradients__not_filled": "reads what nobody has written",
    "score_and_decode__as_given": "overwrites what nobody has read",
}


def test_there_are_twelve_and_they_are_no_lesson():
    assert len(NAMES) == len(set(NAMES)) == 12 and PATH not in lessons()


@pytest.mark.parametrize("name", NAMES)
def test_a_puzzle_has_a_picture_a_hole_a_check_and_a_lesson_behind_it(name):
    sources = [cell.source for cell in cells(PATH, "markdown")]
    at = next(n for n, source in enumerate(sources) if f"puzzles/{name}.svg" in source)
    assert re.match(rf"## {NAMES.index(name) + 1}\. \S", sources[at])
    assert re.match(r"Behind it: \[[^]]+\]\(\d\d_\w+\.ipynb\)\.", sources[at + 1])
    stub, solution = (
        next(source for source in code(path) if source.startswith(f"def {name}("))
        for path in (PATH, NOTEBOOKS / "solutions" / PATH.name)
    )
    written = set(solution.splitlines()) - set(stub.splitlines())
    assert 1 <= len(written) <= HOLE and f"check_capture({name})" in code(PATH)


def test_the_pictures_are_those_of_the_solutions():
    kept = {path.stem: path.read_text(encoding="utf-8") for path in PICTURES.glob("*.svg")}
    assert kept == {name: f"{svg}\n" for name, svg in puzzle_svgs().items()}, (
        "python -m docs.puzzles"
    )


def outcome(kind):
    name = kind.partition("__")[0]
    answer = answers(PATH, name, {})[kind]
    answer.__name__ = name
    return check_capture(answer)


@pytest.mark.parametrize(("kind", "fault"), SHOWS.items(), ids=SHOWS)
def test_a_wrong_answer_is_seen(kind, fault):
    found = outcome(kind)
    assert not found and any(said.endswith(f"{fault}.") for said in found.picture.faults)
    assert f"{fault}." in found.picture.said and fault.split("() ")[-1] in found.picture.svg
    assert found._repr_html_().count('<img class="chart" alt="') == 1
    ElementTree.fromstring(found.picture.svg)


@pytest.mark.parametrize("name", NAMES)
def test_of_a_wrong_answer_something_is_red(name):
    wrong = [kind for kind in answers(PATH, name, {}) if kind != name and RIGHT not in kind]
    assert len(wrong) > 5
    for kind in wrong:
        found = outcome(kind)
        assert not found and found.picture.faults, kind


@pytest.mark.parametrize("given", ["ten_times", lambda x: x, None])
def test_what_is_no_puzzle_is_said_in_one_sentence(given):
    assert repr(check_capture(given)) == f"✗ {NO_PUZZLE}"


@pytest.mark.parametrize("name", NAMES)
def test_of_a_right_answer_nothing_is_red(name):
    for kind in answers(PATH, name, {}):
        if kind == name or RIGHT in kind:
            found = outcome(kind)
            assert found and found.picture.faults == [], kind


def doubled():
    x = torch.tensor([1.0, 2.0, 3.0], device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = 2 * x
    graph.replay()
    return y.tolist()


def test_a_capture_of_ones_own_is_drawn():
    found = picture(doubled)
    assert found.faults == [] and "Replay: reads x and writes y = 2 4 6." in found.said
    with cpu_graphs():
        assert picture(doubled).svg == found.svg
    assert NONE in picture(lambda: None).said


ALONE = """
import sys
import types
from importlib.abc import MetaPathFinder

class Missing(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("course", "helpers"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
alone = types.ModuleType("exercises")  # as the wheel has it: without __init__.py
alone.__path__ = ["exercises"]
sys.modules["exercises"] = alone
from exercises.puzzles import check_capture

def ten_times(x):
    return 10 * x

print(repr(check_capture(ten_times)))
"""


def test_they_need_the_stand_in_and_not_the_course():
    run = run_python("-c", ALONE)
    assert run.stdout == "✗ ten_times: Nothing was replayed: this runs eagerly.\n", run.stderr
