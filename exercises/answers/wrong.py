"""What may be wrong with an answer, in the reader's terms."""

from collections.abc import Callable
from typing import Any

from exercises.answers.comparison import short_repr

EAGER = "Nothing was replayed: this runs eagerly."
EVERY_TIME_THE_FIRST = (
    "Every result is that of the first input.",
    "Copy the new input into the static input.",
)
EVERY_TIME_THE_LAST = (
    "Every result is the last one.",
    "The next replay writes over it: clone each result after its replay.",
)
WRITTEN_OVER = (
    "A result was right when it was returned, and a later replay wrote over it.",
    "Clone it after the replay; a clone inside of the capture is memory of the graph.",
)


class Wrong(Exception):
    """What is wrong with an answer, in the reader's terms: what is seen, and the repair.

    said: both in one text, or a pair of the two. Whoever repairs a broken capture reads the second
    only after some runs.
    """

    def __init__(self, said: str | tuple[str, str], repair: str = ""):
        self.symptom, self.repair = said if isinstance(said, tuple) else (said, repair)
        super().__init__(f"{self.symptom} {self.repair}".rstrip())


def require_function(answer: Any) -> Callable:
    """The function that an answer returned. Raises Wrong if it is none."""
    if not callable(answer):
        raise Wrong(f"A function is to be returned, not {short_repr(answer)}.")
    return answer
