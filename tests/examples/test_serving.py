"""examples.serving: who gets tokens in a step, and figures of requests; *Serve a language model*
records that all answers are right.
"""

import pytest

from examples.serving import Request, advance, figures, fit, make_requests, schedule


def request(length, computed=0, limit=2, arrival=0.0):
    return Request(list(range(length)), limit, arrival, computed)


def test_decoding_comes_first_and_a_long_prompt_takes_what_is_left():
    slots = [request(300, arrival=1.0), None, request(40, computed=39, arrival=2.0), request(50)]
    assert schedule(slots, budget=128) == {2: 1, 3: 50, 0: 77}


def test_a_full_budget_leaves_requests_out():
    slots = [request(9, computed=8), request(100, arrival=1.0), request(100, arrival=2.0)]
    assert schedule(slots, budget=101) == {0: 1, 1: 100}


def test_tokens_of_a_free_slot_are_refused():
    with pytest.raises(ValueError, match="slot 0, which is free"):
        advance([None], {0: 1})


def test_a_batch_runs_in_the_smallest_size_that_holds_it():
    assert [fit([1, 2, 8], number) for number in (1, 2, 3, 8)] == [1, 2, 8, 8]
    with pytest.raises(ValueError, match="9 is more than the largest size, 8: split"):
        fit([1, 2, 8], 9)


def test_figures_are_rates_and_percentiles():
    served = [request(3, arrival=1.0), request(3, arrival=2.0)]
    served[0].times = [1.5, 1.6, 1.7]
    served[1].times = [2.5, 2.7]
    table = figures(served)
    assert table["tokens per s"] == pytest.approx(5 / 2.7)
    assert table["first p50 ms"] == pytest.approx(500)
    assert table["next p50 ms"] == pytest.approx(100)
    assert 100 < table["next p99 ms"] < 200


def test_requests_repeat_and_arrive_in_order():
    first, again = make_requests(50, rate=100.0, seed=3), make_requests(50, rate=100.0, seed=3)
    assert first == again != make_requests(50, rate=100.0)
    arrivals = [one.arrival for one in first]
    assert arrivals == sorted(arrivals) and arrivals[-1] > 0
    assert all(8 <= len(one.tokens) <= 900 and 8 <= one.limit <= 32 for one in first)
    assert {one.arrival for one in make_requests(5)} == {0.0}
