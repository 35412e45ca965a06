import itertools

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers import timing
from helpers.timing import compare, measure, quartiles, ratios, too_close


class Machine:
    """A clock, a CPU that issues and a GPU that works through its queue: what measure() times."""

    def __init__(self):
        self.now = self.gpu_free = 0.0
        self.log = []

    def step(self, name, host, gpu):
        def run():
            self.log.append(name)
            self.now += host
            self.gpu_free = max(self.gpu_free, self.now) + gpu

        return run

    def wait(self):
        self.log.append("wait")
        self.now = max(self.now, self.gpu_free)

    def measure(self, variants, **options):
        steps = {
            name: self.step(name, host / 1e6, gpu / 1e6) for name, (host, gpu) in variants.items()
        }
        return measure(steps, clock=lambda: self.now, wait=self.wait, **options)


def test_host_time_is_issuing_and_step_time_is_the_slower_of_host_and_gpu():
    rounds = Machine().measure({"cpu-bound": (100, 20), "gpu-bound": (10, 50)}, steps=1000)
    host, step = (quartiles(rounds, column)["median"] for column in ("host_us", "step_us"))
    assert host.to_dict() == pytest.approx({"cpu-bound": 100, "gpu-bound": 10})
    assert step.to_dict() == pytest.approx({"cpu-bound": 100, "gpu-bound": 50}, rel=1e-2)


def runs(machine):
    """The steps that ran in a row: name and number."""
    groups = itertools.groupby(machine.log)
    return [(name, len(list(group))) for name, group in groups if name != "wait"]


def test_rounds_are_interleaved_and_nothing_waits_inside_a_visit():
    machine = Machine()
    machine.measure({"a": (1, 1), "b": (1, 1)}, rounds=3, burst=2, steps=4, warmup=1)
    assert runs(machine) == [("a", 1), ("b", 1), *[("a", 4), ("b", 4)] * 3]


@pytest.mark.parametrize(
    "host, gpu, visit",
    [(3, 1, 2048), (3, 350, 16), (1400, 300, 4), (1000, 6000, 4), (35_000, 9000, 4)],
)
def test_a_visit_is_5_to_10_ms_or_four_steps(host, gpu, visit):
    machine = Machine()
    rounds = machine.measure({"a": (host, gpu)}, rounds=2)
    assert runs(machine)[-2:] == [("a", visit)] * 2
    assert 5000 <= visit * rounds.step_us.median() < 10_100 or visit == 4
    assert machine.log[-visit - 2 :] == ["wait", *["a"] * visit, "wait"]


@given(st.integers(1, 1000), st.floats(2.5, 50), st.floats(0.1, 50_000))
def test_the_launch_queue_never_fills(launches, launch_us, gpu_us):
    """A launch takes the CPU 2.5 µs or more; gpu_us: the GPU's time for all launches of a step."""
    machine, host_us = Machine(), launches * launch_us
    step = machine.step("a", host_us / 1e6, gpu_us / 1e6)
    burst, steps = timing._step_counts(step, None, None, lambda: machine.now, machine.wait)
    started = burst * min(1.0, host_us / gpu_us)  # when the last one is issued
    assert launches * (burst - started) <= 1001
    assert steps == max(burst, 4)


@given(st.floats(0.5, 1250), st.floats(0.5, 1250))
def test_host_time_never_exceeds_the_step_time_of_the_same_burst(host, gpu):
    rounds = Machine().measure({"a": (host, gpu)}, rounds=2)
    assert (rounds.host_us <= rounds.step_us * (1 + 1e-9)).all()


def test_the_first_steps_of_a_long_visit_give_the_host_time():
    """Later steps may have to wait for room in the launch queue."""
    machine, calls = Machine(), itertools.count()

    def step():
        machine.now += 1e-3 if next(calls) % 4 == 0 else 9e-3
        machine.gpu_free = max(machine.gpu_free, machine.now) + 9e-3

    counts = {"rounds": 3, "warmup": 0, "burst": 1, "steps": 4}
    rounds = measure({"a": step}, clock=lambda: machine.now, wait=machine.wait, **counts)
    assert list(rounds.host_us) == pytest.approx([1000] * 3)


@pytest.mark.parametrize(
    "options, visit",
    [
        ({"steps": 7}, 7),
        ({"burst": 5}, 5),
        ({"burst": 1}, 4),
        ({"burst": 9, "steps": 3}, 3),
    ],
)
def test_given_numbers_are_kept_and_nothing_is_tried_out(options, visit):
    """As ranks need it, which must all run the same steps."""
    machine = Machine()
    machine.measure({"a": (1, 1)}, rounds=2, warmup=3, **options)
    assert runs(machine) == [("a", 3), ("a", visit), ("a", visit)]


def test_a_step_of_no_time_ends():
    rounds = measure({"a": lambda: None}, rounds=1, clock=lambda: 0.0, wait=lambda: None)
    assert rounds.step_us.tolist() == [0]


def test_a_failing_step_names_its_variant():
    def fail():
        raise ZeroDivisionError("no")

    with pytest.raises(ZeroDivisionError) as caught:
        measure({"good": lambda: None, "bad one": fail})
    assert caught.value.__notes__ == ["raised by variant 'bad one' while it was measured"]


def test_nothing_to_measure_is_an_error():
    with pytest.raises(ValueError, match="at least one variant"):
        measure({})


def table(**steps):
    rows = [(i, name, us, us) for name, values in steps.items() for i, us in enumerate(values)]
    return pd.DataFrame(rows, columns=["round", "variant", "host_us", "step_us"])


def test_ratios_are_taken_round_by_round():
    drifting = table(slow=[100, 200, 400], fast=[50, 100, 200])
    assert ratios(drifting, "step_us").loc["fast"].tolist() == [2, 2, 2]


VERSUS = "step time vs. first: median [quartiles]"


def test_overlapping_quartiles_are_too_close_to_call():
    rounds = table(first=[98, 100, 102, 104], near=[101, 103, 105, 107], far=[10, 11, 12, 13])
    assert too_close(rounds, "step_us").to_dict() == {"first": True, "near": True, "far": False}
    text = compare(rounds)
    assert text.loc["near", VERSUS] == "too close to call"
    assert text.loc["first", VERSUS] == "1"
    assert text.loc["far", "step time, µs: median [quartiles]"] == "11.5 [10.8, 12.2]"


@pytest.mark.parametrize(
    "values, words",
    [
        ([35, 36, 37, 38], "2.7 times faster [2.7, 2.8]"),
        ([2500, 2400, 2550, 2600], "25 times slower [25, 26]"),
        ([96, 96, 96, 96], "1.04 times faster [1.04, 1.04]"),
        ([125, 125, 125, 125], "1.25 times slower [1.25, 1.25]"),
        ([0.2, 0.2, 0.2, 0.2], "500 times faster [500, 500]"),
    ],
)
def test_a_factor_is_said_in_words(values, words):
    assert compare(table(first=[100] * 4, other=values)).loc["other", VERSUS] == words


def test_a_factor_whose_quartiles_hold_one_is_too_close_to_call():
    rounds = table(first=[100, 200, 300, 400], other=[90, 210, 280, 430])
    assert compare(rounds).loc["other", VERSUS] == "too close to call"


def test_the_order_of_the_variants_is_kept():
    assert list(compare(table(zebra=[1, 1], ant=[2, 2])).index) == ["zebra", "ant"]


@pytest.mark.parametrize(
    "value, text",
    [(1743.4, "1743"), (62.11, "62.1"), (5.934, "5.93"), (0.0412, "0.0412"), (0, "0")],
)
def test_three_significant_digits(value, text):
    assert timing._short(value) == text
