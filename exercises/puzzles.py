"""The check of the puzzles, which answers with a picture. It needs the stand-in, not the course."""

import inspect
from collections.abc import Callable
from typing import Any

import torch

from cpu_graph import on_stand_in
from cpu_graph.history import History, watch
from cpu_graph.log import Listener, listening, places
from cpu_graph.picture import Picture, draw, picture
from exercises.answers.launches import wrap_replays
from exercises.answers.outcome import Outcome
from exercises.answers.runs import first_problem
from exercises.answers.wrong import Wrong
from exercises.scenarios import find_scenario
from exercises.scenarios.solve_puzzles import WrongInPicture

__all__ = ["check_capture", "picture"]

NO_PUZZLE = "Give check_capture the function of a puzzle under its name: check_capture(ten_times)."
INSIDE = (
    "It replays the graph inside of its own capture.",
    "Call replay after the `with` block: the graph is complete once its capture has ended.",
)
FOR_SHOW = (
    "The results do not depend on the replays: operators outside of the graph compute them.",
    "Let the graph compute, and read what its replays wrote.",
)


class DrawnOutcome(Outcome):
    """What a check found, with the picture of the answer's capture."""

    def __init__(self, right: bool, message: str, seen: Picture | None):
        super().__init__(right, message)
        self.picture = seen

    def _repr_html_(self):
        return super()._repr_html_() + (self.picture._repr_html_() if self.picture else "")


def check_capture(answer: Callable, gpu: bool | None = False) -> DrawnOutcome:
    """Use the answer to a puzzle as its scenario does, and draw what it captured and replayed.

    It runs on the stand-in, with several seeds; the picture is of the first run that is wrong, or
    of the last one. gpu: see exercises.check_capture.
    """
    name = getattr(answer, "__name__", "")
    try:
        use = find_scenario("solve_puzzles", name)
    except LookupError:
        return DrawnOutcome(False, NO_PUZZLE, None)
    seen: list[History] = []

    def run(returned: Callable) -> None:
        device = on_stand_in()
        if device is None:
            use(returned)
            return
        first = not seen
        try:
            with watch(device) as history:
                seen[:] = [history]
                with wrap_replays(_refuse_replay_in_capture):
                    use(_name_tensors_of(history, returned, answer))
            if first:
                _require_replays_matter(use, returned)
        except WrongInPicture as wrong:
            history.add_fault_where(wrong.where, wrong.what)
            raise

    problem = first_problem(answer, run, gpu)
    shown = draw(seen[0], problem.symptom or None) if seen else None
    said = f"✗ {name}: {problem}" if problem else f"✓ {name} is right."
    return DrawnOutcome(not problem, said, shown)


def _refuse_replay_in_capture(replay: Callable, graph: Any) -> None:
    if torch.cuda.is_current_stream_capturing():
        raise Wrong(INSIDE)
    replay(graph)


class ReplayCorruptor(Listener):
    """Adds 1 to all that a replay writes, once it is done."""

    def launched(self, nodes: list, graph: Any) -> None:
        """Add it, if this was a replay."""
        for node in nodes if graph else ():
            written = {block for (block, *_), writes in node.spans.items() if writes}
            for place in places((node.args, node.kwargs, node.outputs)):
                if place.block in written:
                    written.remove(place.block)
                    place.view().copy_(place.view() + 1)


def _require_replays_matter(use: Callable, returned: Callable) -> None:
    """Raises Wrong if an answer stays right where its replays write something else."""
    try:
        with listening(ReplayCorruptor()):
            use(returned)
    except Exception:
        return  # as it should
    raise WrongInPicture(FOR_SHOW, "its results are not used", lambda step: step.graph is not None)


def _name_tensors_of(history: History, call: Callable, answer: Callable) -> Callable:
    """The answer, and what it returns; the tensors that they are given are called as they call
    them.
    """

    def named(*arguments: Any) -> Any:
        for name, value in zip(inspect.signature(answer).parameters, arguments, strict=False):
            if torch.is_tensor(value):
                history.name(value, name)
        given = call(*arguments)
        for name, value in zip(inspect.signature(answer).parameters, arguments, strict=False):
            if torch.is_tensor(value) and value.is_leaf and value.grad is not None:
                history.name(value.grad, f"{name}.grad")
        return _name_tensors_of(history, given, given) if inspect.isfunction(given) else given

    return named
