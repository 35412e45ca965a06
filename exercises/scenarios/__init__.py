"""One scenario per exercise that asks for a capture: it uses the answer as a reader would, and
raises Wrong with the symptom that it finds.

The scenarios of a lesson are the functions in <lesson>.py that are called as its exercises are;
common, eager, warm_ups: what several lessons share; rules: what the texts of exercises state.
"""

from collections.abc import Callable
from importlib import import_module


def scenario(lesson: str, exercise: str) -> Callable:
    """The scenario of a lesson's exercise. Raises LookupError, which says what to write where, if
    there is none.
    """
    name = f"{__name__}.{lesson}"
    try:
        return getattr(import_module(name), exercise)
    except ModuleNotFoundError as error:
        if error.name != name:  # the file is there, and imports what is not
            raise
    except AttributeError:
        pass
    raise LookupError(
        f"{exercise} has no scenario: write {exercise}(answer) in exercises/scenarios/{lesson}.py."
    )
