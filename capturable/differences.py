"""Differences between two runs of a step: each would freeze in a graph."""

from collections.abc import Iterator
from itertools import zip_longest

from capturable.operators import Op


def differences(first: list[Op], second: list[Op], kept: set[int] | None = None) -> Iterator[tuple[str, Op, str]]:
    """(rule, op, what differs) between the operators of two runs: each would freeze in a graph.

    kept: addresses; a tensor that is read in the second run alone counts as moved if it lies at one of them, by
    default wherever it lies. What only follows from a shape that differs, or from a size that depends on the
    data, is left out.
    """
    seen, shapes_agree = set(), True
    for one, two in zip_longest(first, second):
        if one is None or two is None or one.name != two.name:
            names = [op.name if op else "nothing more" for op in (one, two)]
            yield "path", one or two, f"{names[0]} in one step, {names[1]} in the next"
            return
        if one.shapes != two.shapes and shapes_agree:
            yield "shape", one, f"{one.name} had the shapes {one.shapes}, then {two.shapes}"
        shapes_agree = shapes_agree and one.shapes == two.shapes and not one.sized
        pairs = [pair for pair in zip(one.numbers, two.numbers, strict=False) if repr(pair[0]) != repr(pair[1])]
        changed = next((f"{a!r}, then {b!r}" for a, b in pairs if shapes_agree or not _is_size(a, b)), None)
        if one.shapes == two.shapes and changed and changed not in seen:  # backward takes it again
            yield "frozen number", one, f"{one.name} got the number {changed}"
        moved = set(two.outside) - set(one.outside) - seen if len(one.outside) == len(two.outside) else set()
        moved = moved if kept is None else moved & kept
        if moved:
            yield "moved tensor", one, f"{one.name} reads a tensor that is at another address each time"
        seen |= {changed, *moved}


def _is_size(*numbers):
    """Whether numbers are whole, or one divided by whole ones, as in a mean."""
    return all(
        isinstance(number, int) or isinstance(number, float) and number and abs(1 / number - round(1 / number)) < 1e-6
        for number in numbers
    )
