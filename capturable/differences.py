"""Differences between two runs of a step: each would freeze in a graph."""

from collections.abc import Iterator
from itertools import zip_longest

from capturable.operators import Op


class _MissingArgument:
    """Stands for an argument that was not given."""

    def __repr__(self) -> str:
        return "its default"


DEFAULT = _MissingArgument()


def operator_differences(
    first: list[Op], second: list[Op], kept: set[int] | None = None
) -> Iterator[tuple[str, Op, str, set[int]]]:
    """(rule, op, what differs, addresses that moved) between the operators of two runs: each would
    freeze in a graph.

    kept: addresses; a tensor that is read in the second run alone counts as moved if it is at one
    of them, by default wherever it is. What only follows from a shape that differs, or from a size
    that depends on the data, is left out.
    """
    seen: set = set()
    shapes_agree = True
    for one, two in zip_longest(first, second):
        if one is None or two is None or one.name != two.name:
            names = [op.name if op else "nothing more" for op in (one, two)]
            what = f"{names[0]} in one step, {names[1]} in the next; what follows was not compared"
            yield "path", one or two, what, set()
            return
        if one.shapes != two.shapes and shapes_agree:
            yield "shape", one, f"{one.name} had the shapes {one.shapes}, then {two.shapes}", set()
        shapes_agree = shapes_agree and one.shapes == two.shapes and not one.sized
        changed = _changed_number_text(one, two, shapes_agree)
        known = changed in seen if one.backward else (changed, one.line) in seen
        if one.shapes == two.shapes and changed and not known:  # backward takes it again
            yield "frozen number", one, f"{one.name} got the number {changed}", set()
        moved = _moved_addresses(one, two, kept) - seen
        if moved:
            yield "moved tensor", one, f"{one.name} reads it", moved
        seen |= {changed, (changed, one.line), *moved}


def first_difference_text(captured: list[Op], eager: list[Op]) -> str:
    """Where a capture's operators first differ from those of an eager run, as the end of a
    sentence, or ""."""
    for one, two in zip_longest(captured, eager):
        names = [op.name if op else "nothing more" for op in (one, two)]
        if names[0] != names[1]:
            return f": {names[0]} runs in the capture, {names[1]} in an eager run"
        if one.shapes != two.shapes or repr(one.numbers) != repr(two.numbers):
            return f": {names[0]} runs with other arguments in the capture"
    return ", which changed no operator"


def _changed_number_text(one: Op, two: Op, shapes_agree: bool) -> str | None:
    """The first number of an operator that differs, sizes left out once shapes do not agree.

    An argument that has its default is not among the numbers.
    """
    for old, new in zip_longest(one.numbers, two.numbers, fillvalue=DEFAULT):
        if repr(old) != repr(new) and (shapes_agree or not _look_like_sizes(old, new)):
            return f"{old!r}, then {new!r}"
    return None


def _moved_addresses(one: Op, two: Op, kept: set[int] | None) -> set[int]:
    """Addresses that the second run alone reads."""
    if len(one.outside) != len(two.outside):
        return set()
    moved = set(two.outside) - set(one.outside)
    return moved if kept is None else moved & kept


def _look_like_sizes(*numbers: object) -> bool:
    """Whether numbers are whole, or one divided by whole ones, as in a mean."""
    return all(map(_is_whole_or_reciprocal, numbers))


def _is_whole_or_reciprocal(number: object) -> bool:
    if isinstance(number, int):
        return True
    if not isinstance(number, float) or not number:
        return False
    return abs(1 / number - round(1 / number)) < 1e-6
