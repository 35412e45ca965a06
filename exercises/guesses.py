"""A guess beside the measurement that answers it."""

import math
from collections.abc import Mapping
from typing import Any

from exercises.answers.comparison import short_repr, to_plain_types
from exercises.answers.outcome import Outcome

NO_GUESS = "○ no guess yet: put yours in place of `...`; "


def compare_guess(
    guess: Any, measured: Any, unit: str = "", because: Mapping[float, str] | None = None
) -> Outcome:
    """Lay a guess beside the measurement: spot on (within 10%), close (within 50%), or how far off.

    Where a word, a truth value or a count below 20 was measured, the guess is right or not; in a
    list of words neither case nor order matters. because says what is wrong with numbers that have
    a reason. No guess gets a sentence.
    """
    measured = to_plain_types(measured)
    if isinstance(measured, str | bool):
        said = to_plain_types(guess)
        if not isinstance(said, type(measured)):
            wanted = "words in quotes" if isinstance(measured, str) else "True or False"
            return _unusable_guess_outcome(guess, f"found: {measured}", wanted)
        right = _normalized_words(said) == _normalized_words(measured)
        return Outcome(right, f"your guess {short_repr(guess)}, found {measured}")
    digits = ",.0f" if abs(measured) >= 1000 else ".3g"
    number, found = _number(guess), f"measured {measured:{digits}}{unit}"
    if number is None:
        return _unusable_guess_outcome(guess, found, "a number without quotes or unit")
    reason = (because or {}).get(number, "")
    count = 0 < measured < 20 and measured == int(measured)
    if number != measured and (reason or count):
        reason = reason or f"off by {abs(number - measured):g}"
        return Outcome(False, f"your guess {number:g}{unit}, {found}: {reason}")
    low, high = sorted((abs(number), abs(measured)))
    same_side = low > 0 and (number > 0) == (measured > 0)
    factor = 1 if number == measured else high / low if same_side else math.inf
    far = f"off by a factor of {factor:.1f}" if factor < 1e6 else "far off"
    sign, word = (
        ("✓", "spot on") if factor < 1.1 else ("~", "close") if factor < 1.5 else ("✗", far)
    )
    return Outcome(factor < 1.5, f"{sign} your guess {number:g}{unit}, {found}: {word}")


def _number(guess: Any) -> Any:
    """A guess as a finite number, or None."""
    try:
        number = to_plain_types(guess)
        return None if isinstance(number, bool) or not math.isfinite(number) else number
    except Exception:
        return None


def _normalized_words(said):
    """What a guess in words says, whatever its case and the order of its parts."""
    return sorted(part.strip().casefold() for part in str(said).split(","))


def _unusable_guess_outcome(guess, found, wanted):
    if guess is ... or guess is None:
        return Outcome(False, f"{NO_GUESS}{found}")
    return Outcome(False, f"○ your guess {short_repr(guess)} does not fit: write {wanted}; {found}")
