"""examples.serving: who gets tokens in a step, and when a request is done."""

import pytest

from examples.serving import Request, make_requests, schedule, take_tokens


def request(length, computed=0, limit=2, arrival=0.0):
    return Request(list(range(length)), limit, arrival, computed)


def test_decoding_comes_first_and_a_long_prompt_takes_what_is_left():
    slots = [request(300, arrival=1.0), None, request(40, computed=39, arrival=2.0), request(50)]
    assert schedule(slots, budget=128) == {2: 1, 3: 50, 0: 77}


def test_a_full_budget_leaves_requests_out():
    slots = [request(9, computed=8), request(100, arrival=1.0), request(100, arrival=2.0)]
    assert schedule(slots, budget=101) == {0: 1, 1: 100}


def test_a_token_counts_once_the_whole_prompt_was_read():
    slots = [request(10), request(8, computed=7)]
    one, other = slots
    take_tokens(slots, {0: 4, 1: 1}, [70, 71], now=1.0)
    assert (one.computed, one.times, len(one.tokens)) == (4, [], 10)
    assert (other.tokens[-1], other.times, other.causes) == (71, [1.0], ["with a prompt"])
    take_tokens(slots, {0: 6, 1: 1}, [80, 81], now=2.0)
    assert one.tokens[-1] == 80 and slots == [one, None]
    take_tokens(slots, {0: 1}, [90], now=3.0)
    assert slots == [None, None] and one.causes == ["with a prompt", "decoding only"]


def test_tokens_of_a_free_slot_are_refused():
    with pytest.raises(ValueError, match="slot 0, which is free"):
        take_tokens([None], {0: 1}, [5], now=0.0)


def test_requests_repeat_and_arrive_in_order():
    first, again = make_requests(50, rate=100.0, seed=3), make_requests(50, rate=100.0, seed=3)
    assert first == again != make_requests(50, rate=100.0)
    arrivals = [one.arrival for one in first]
    assert arrivals == sorted(arrivals) and arrivals[-1] > 0
    assert all(8 <= len(one.tokens) <= 900 and 8 <= one.limit <= 32 for one in first)
    assert {one.arrival for one in make_requests(5)} == {0.0}
