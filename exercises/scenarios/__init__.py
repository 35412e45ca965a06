"""One scenario per exercise that asks for a capture: it uses the answer as a reader would, and
raises Wrong with the symptom that it finds.

The scenario of a lesson's exercise is judge_<exercise> in <lesson>.py; common, eager, warm_ups:
what several lessons share; rules: what the texts of exercises state.
"""

from collections.abc import Callable
from importlib import import_module


def find_scenario(lesson: str, exercise: str) -> Callable:
    """The scenario of a lesson's exercise. Raises LookupError, which says what to write where, if
    there is none.
    """
    name = f"{__name__}.{lesson}"
    try:
        return getattr(import_module(name), f"judge_{exercise}")
    except ModuleNotFoundError as error:
        if error.name != name:  # the file is there, and imports what is not
            raise
    except AttributeError:
        pass
    raise LookupError(
        f"{exercise} has no scenario: write judge_{exercise}(answer) in "
        f"exercises/scenarios/{lesson}.py."
    )
