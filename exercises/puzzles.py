"""The check of the puzzles, which answers with a picture. It needs the stand-in, not the course."""

import inspect
from collections.abc import Callable
from typing import Any

import torch

from cpu_graph import on_stand_in
from cpu_graph.history import History, watched
from cpu_graph.picture import Picture, drawn, picture
from exercises.answers.outcome import Outcome
from exercises.answers.runs import first_problem
from exercises.scenarios import scenario

__all__ = ["check_capture", "picture"]


class Drawn(Outcome):
    """What a check found, with the picture of the answer's capture."""

    def __init__(self, right: bool, message: str, seen: Picture | None):
        super().__init__(right, message)
        self.picture = seen

    def _repr_html_(self):
        return super()._repr_html_() + (self.picture._repr_html_() if self.picture else "")


def check_capture(answer: Callable, gpu: bool | None = False) -> Drawn:
    """Use the answer to a puzzle as its scenario does, and draw what it captured and replayed.

    It runs on the stand-in, with several seeds; the picture is of the first run that is wrong, or
    of the last one. gpu: see exercises.check_capture. Raises LookupError for a name that no puzzle
    has.
    """
    name = getattr(answer, "__name__", "")
    use = scenario("solve_puzzles", name)
    seen: list[History] = []

    def run(returned: Callable) -> None:
        device = on_stand_in()
        if device is None:
            use(returned)
            return
        with watched(device) as history:
            seen[:] = [history]
            use(_naming(history, returned, answer))

    problem = first_problem(answer, run, gpu)
    shown = drawn(seen[0], str(problem) or None) if seen else None
    said = f"✗ {name}: {problem}" if problem else f"✓ {name} is right."
    return Drawn(not problem, said, shown)


def _naming(history: History, call: Callable, answer: Callable) -> Callable:
    """The answer, and what it returns; the tensors that they are given are called as they call
    them.
    """

    def named(*arguments: Any) -> Any:
        for name, value in zip(inspect.signature(answer).parameters, arguments, strict=False):
            if torch.is_tensor(value):
                history.name(value, name)
        given = call(*arguments)
        return _naming(history, given, given) if inspect.isfunction(given) else given

    return named
