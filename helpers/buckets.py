"""Buckets: the few sizes to which inputs of many lengths are padded, one graph for each."""

from bisect import bisect_left
from itertools import accumulate, combinations


def plan_buckets(histogram, count, price=0.0):
    """Choose at most count sizes that cost least together: padding, plus price for each row of a size.

    histogram: how often each length occurs, a dict of length -> number. price: how many padded rows
    you would put up with to save one row of graph memory (0: memory is free, as in a shared pool,
    where the largest graph alone counts). Exact, by dynamic programming over the lengths that occur.
    Returns the sizes in rising order; the last is the greatest length. Raises ValueError for an
    empty histogram or a count below 1.
    """
    lengths = sorted(length for length, number in histogram.items() if number)
    if not lengths or count < 1:
        raise ValueError("plan_buckets needs at least one length that occurs, and at least one bucket")
    numbers = [0, *accumulate(histogram[length] for length in lengths)]
    rows = [0, *accumulate(length * histogram[length] for length in lengths)]

    def cost(start, end):
        """Of one bucket for the lengths from start up to end: padding, and its memory."""
        size = lengths[end - 1]
        return size * (numbers[end] - numbers[start]) - (rows[end] - rows[start]) + price * size

    best = {0: (0, [])}  # lengths covered so far -> least cost, and the sizes
    for _ in range(count):
        longer = {0: (0, [])}
        for start, end in combinations(range(len(lengths) + 1), 2):
            if start in best:
                candidate = (best[start][0] + cost(start, end), [*best[start][1], lengths[end - 1]])
                longer[end] = min(longer.get(end, candidate), candidate)
        best = longer
    return best[len(lengths)][1]


def bucket_for(sizes, length):
    """The smallest of the sizes (rising) that holds length. Raises ValueError if none does."""
    if length > sizes[-1]:
        raise ValueError(f"no bucket holds a length of {length}: the largest is {sizes[-1]}")
    return sizes[bisect_left(sizes, length)]


def padded_rows(histogram, sizes):
    """Rows of padding, if each length of the histogram is padded to its bucket: an int."""
    return sum(number * (bucket_for(sizes, length) - length) for length, number in histogram.items())
