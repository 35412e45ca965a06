"""The exercises: what checks an answer, and says what is wrong with it.

checks     check, check_capture: an answer against its solution, or used as its scenario uses it
guesses    compare_guess: a guess beside the measurement
scripts    repaired, symptoms: the ten broken scripts
scenarios  how the answer to an exercise in captures is used, a file per lesson
answers    runs of an answer, and what they show, in words
unfinished what a lesson, an exercise or an exhibit still lacks

puzzles    check_capture: the same with a picture; needs the stand-in, not the course

Lessons import what they need from here.
"""

from importlib import import_module
from typing import Any

HOMES = {
    "check": "checks",
    "check_capture": "checks",
    "compare_guess": "guesses",
    "guessed": "guesses",
    "repaired": "scripts",
    "symptoms": "scripts",
}


def __getattr__(name: str) -> Any:
    """Import the course only when something is asked for that needs it: the puzzles do not."""
    if name not in HOMES:
        raise AttributeError(f"module 'exercises' has no attribute {name!r}")
    return getattr(import_module(f"exercises.{HOMES[name]}"), name)
