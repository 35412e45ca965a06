"""The verdict on traces that are odd in one way is right, or refused in a sentence.

A trace is drawn from a simulated run, and then mutated. What is true of it is counted from the run
itself: whole microseconds in which a GPU works. tests/helpers/test_trace.py has the single facts.
"""

import collections
import random
import re
from dataclasses import dataclass, field

import pytest

from tests.support.traces import event, kernel, launch, step
from trace_report.trace import read_trace
from trace_report.verdict import CPU_BOUND, LOADER_BOUND, SLOWED

NEAR = 0.02  # so near to a border no run is judged
PAUSES = "pauses between the steps take another"


@dataclass
class Run:
    """A run of some steps: its events, and what is true of it, in whole microseconds.

    steps: (start, end) of each mark; work: (start, end, step, device, name) of each GPU activity;
    first: when each step's first launch begins.
    """

    steps: list = field(default_factory=list)
    work: list = field(default_factory=list)
    first: list = field(default_factory=list)
    events: list = field(default_factory=list)
    says: list = field(default_factory=list)  # what the verdict must say
    refused: str = ""  # why there is no verdict, as a pattern

    def done(self):
        """When the work of each step, and all before it, has ended; of the steps up to the last
        that has any.
        """
        steps = range(max(one[2] for one in self.work if one[2] < len(self.steps)) + 1)
        return [max(one[1] for one in self.work if one[2] <= number) for number in steps]

    def window(self):
        """The microseconds that count: from GPU end to GPU end, without pauses between the marks in
        which neither host nor GPU works on a step.
        """
        done = self.done()
        inside = set(range(done[0], done[-1]))
        for number in range(1, len(done)):
            over = max(done[number - 1], self.steps[number - 1][1])
            inside -= set(range(over, self.steps[number][0]))
        return inside

    def ticks(self, device=None, without=None):
        """The microseconds of the window in which a GPU works: this one, or any."""
        chosen = [
            one
            for one in self.work
            if device in (None, one[3]) and not (without and one[4].startswith(without))
        ]
        return self.window() & {tick for one in chosen for tick in range(one[0], one[1])}

    def shares(self):
        """The shares of the steps' time that the verdict depends on."""
        total = len(self.window())
        busy = {device: len(self.ticks(device)) for device in {one[3] for one in self.work}}
        busiest = max(busy, key=busy.get)
        idle = total - busy[busiest]
        loading = sum(
            len(self.window() & set(range(start, first)) - self.ticks())
            for (start, _), first in zip(self.steps[1:], self.first[1:], strict=False)
        )
        return {
            "total": total,
            "idle": idle / total,
            "none": 1 - len(self.ticks()) / total,
            "collective": (busy[busiest] - len(self.ticks(busiest, without="nccl"))) / total,
            "loading": loading / idle if idle else 0.0,
        }


def run(rng, synchronous=None, gpus=1, collective=False):
    """A few simulated steps: a host that launches, and GPUs that work in the order of launches."""
    made = Run()
    synchronous = rng.random() < 0.5 if synchronous is None else synchronous
    host = free = rng.randrange(50)
    count, kernels = rng.randint(2, 5), rng.randint(2, 8)
    border = rng.randint(1, kernels - 1) if gpus == 2 else kernels  # where the second GPU begins
    number = 0
    gap, long = rng.choice([6, 15, 40]), rng.choice([5, 30, 120])
    lead = rng.choice([10, 10, 100])
    for index in range(count):
        start = host
        host += lead
        made.first.append(host)
        for k in range(kernels):
            number += 1
            made.events.append(launch(host, number))
            begin = max(free, host + rng.randint(3, 6))
            last = k == kernels - 1
            name = "ncclDevKernel_AllReduce" if collective and last else "k"
            duration = rng.randint(1, long) * (rng.choice([1, 10]) if name != "k" else 1)
            free = begin + duration
            device = int(k >= border)
            made.work.append((begin, free, index, device, name))
            made.events.append(kernel(begin, duration, number, device=device) | {"name": name})
            host += rng.randint(gap // 2, gap)
        if synchronous or index == count - 1:
            end = max(host, free) + rng.randint(1, 3)
            made.events.append(event("cuda_runtime", "cudaDeviceSynchronize", host, end - host))
            host = end
        host += rng.randint(0, 4)
        made.steps.append((start, host))
    return made


def marks(made):
    return [step(n, start, end - start) for n, (start, end) in enumerate(made.steps)]


# What each kind of odd trace is made of. A kind changes the run, and what is true of it, together.


def sound(rng):
    return run(rng)


def without_device(rng):
    made = run(rng)
    activities = [one for one in made.events if one["cat"] == "kernel"]
    for one in rng.sample(activities, rng.randint(1, len(activities))):
        if rng.random() < 0.5:
            del one["args"]["device"]
        else:
            one["args"]["device"] = None
    return made


def without_ids(rng):
    """Activities without a stream, or of unknown launches."""
    made = run(rng)
    activities = [one for one in made.events if one["cat"] == "kernel"]
    gone = rng.choice(["correlation", "stream"])
    for one in rng.sample(activities, rng.randint(1, len(activities) - 1)):
        del one["args"][gone]
    if gone == "correlation":
        made.refused = r"of the steps' \d+ kernel launches have no kernel in the trace"
    return made


def another_gpu(rng):
    """A microsecond on a GPU without work of the steps, perhaps of an id that a step launched."""
    made = run(rng)
    at = rng.randrange(-100, made.steps[-1][1])
    if rng.random() < 0.5:
        made.events.append(kernel(at, 1, 10**6, device=3, category="gpu_memset"))
    else:
        at = made.first[0] + 5
        made.events += [launch(made.first[0], 10**6), kernel(at, 1, 10**6, device=3)]
        made.work.append((at, at + 1, 0, 3, "k"))
    return made


def gpus_in_turns(rng):
    return run(rng, gpus=2)


def pauses(rng):
    """Something between the steps, as validation: what follows is later."""
    made = run(rng, synchronous=True)
    size = made.steps[0][1] - made.steps[0][0]
    shifts = [0]
    for _ in made.steps[1:]:
        shifts.append(shifts[-1] + rng.randint(size, 10 * size))
    starts = [start for start, _ in made.steps]
    for one in made.events:
        one["ts"] += shifts[sum(start <= one["ts"] for start in starts) - 1]
    made.work = [(a + shifts[n], b + shifts[n], n, *rest) for a, b, n, *rest in made.work]
    made.first = [at + shift for at, shift in zip(made.first, shifts, strict=True)]
    made.steps = [(a + shift, b + shift) for (a, b), shift in zip(made.steps, shifts, strict=True)]
    if shifts[-1] > 0.11 * len(made.window()):
        made.says.append(PAUSES)
    return made


def stopped_late(rng):
    """A last step that does not end: with work in it, or without."""
    made = run(rng)
    end = made.steps[-1][1]
    size = rng.randint(5, 1000) * end
    if rng.random() < 0.5:
        made.steps.append((end, end + size))
    else:
        made.steps[-1] = (made.steps[-1][0], end + size)
    return made


def clock_off(rng):
    """The GPU's clock is late, beyond a wait for the device, or early, before the launches."""
    made = run(rng)
    shift = rng.choice([-1, 1]) * rng.randint(10, 3000)
    for one in made.events:
        if one["cat"] == "kernel":
            one["ts"] += shift
    made.refused = "GPU activities (begin before|end after) .* the GPU's clock is off"
    return made


def waiting_collective(rng):
    return run(rng, collective=True)


def loader_worker(rng):
    """Another process with one CUDA call, and perhaps a copy of its own."""
    made = run(rng)
    at = rng.randrange(made.steps[-1][1])
    made.events.append(launch(at, 10**6, "cudaMemcpyAsync") | {"pid": 2, "tid": 2})
    if rng.random() < 0.5:
        made.events.append(kernel(at + 5, 1, 10**6, category="gpu_memcpy"))
        made.work.append((at + 5, at + 6, len(made.steps), 0, "k"))
    return made


def two_processes(rng):
    made = run(rng)
    other = run(rng)
    made.events += [one | {"pid": 2, "tid": 2} for one in [*marks(other), *other.events]]
    made.refused = "steps of 2 processes"
    return made


def unknown_gpus(rng):
    made = run(rng, gpus=2)
    activity = rng.choice([one for one in made.events if one["cat"] == "kernel"][1:-1])
    del activity["args"]["device"]
    made.refused = "1 GPU activities do not say on which of 2 GPUs they ran"
    return made


def nothing_long(rng):
    """A trace that spans less than a microsecond."""
    host = event("cpu_op", "aten::add", 0, rng.random() / 2)
    events = [host, launch(0, 1) | {"dur": 0.1}, kernel(0.05, rng.random() / 3, 1)]
    made = Run(steps=[(0, 0.5)], events=events)
    made.refused = "too short to judge"
    return made


KINDS = [sound, without_device, without_ids, another_gpu, gpus_in_turns, pauses, stopped_late]
KINDS += [clock_off, waiting_collective, loader_worker, two_processes, unknown_gpus, nothing_long]


def unslowed(share):
    """What a share of idle time may be without the profiler."""
    return 1 - SLOWED * (1 - share)


def drawn(kind, seed):
    """A run of the kind that lies near no border."""
    for attempt in range(100):
        made = kind(random.Random(f"{kind.__name__} {seed} {attempt}"))
        if made.refused:
            return made
        shares = made.shares()
        borders = [shares["idle"], shares["none"], shares["idle"] + shares["collective"]]
        borders += [unslowed(shares["idle"]), unslowed(shares["none"])]
        near = [abs(share - CPU_BOUND) < NEAR for share in borders]
        if not any(near) and abs(shares["loading"] - LOADER_BOUND) > NEAR:
            return made
    raise AssertionError(f"{kind.__name__} {seed}: nothing but borders")


def expected(made):
    """What the verdict begins with."""
    shares = made.shares()
    if made.refused:
        return "No verdict"
    if shares["idle"] >= CPU_BOUND > unslowed(shares["none"]):
        return "No verdict"
    if shares["idle"] < CPU_BOUND <= shares["idle"] + shares["collective"]:
        return "No verdict"
    if shares["idle"] >= CPU_BOUND > unslowed(shares["idle"]):
        return "No verdict"
    return "CPU-bound" if shares["idle"] >= CPU_BOUND else "GPU-bound"


def check_reason(verdict, shares):
    """A refusal says the shares that decided it."""
    said = [float(found) for found in re.findall(r"(\d+)%", verdict)]
    if "the profiler slows" in verdict:
        assert said == [pytest.approx(100 * shares["idle"], abs=0.501), 100 * CPU_BOUND]
        return
    share = shares["collective"] or 1 - shares["none"]
    assert said[-1] == pytest.approx(100 * share, abs=0.501)
    assert ("NCCL" if shares["collective"] else "in turns") in verdict


def judge(made, path):
    """Compare the verdict on a run's trace with what is true of it; return how it begins."""
    trace = read_trace(path)
    verdict = trace.verdict()
    found = verdict.partition(":")[0]
    assert verdict.count(". ") <= 1 and verdict.endswith(".")
    if made.refused:
        assert found == "No verdict" and re.search(made.refused, verdict), verdict
        return found
    shares, summary = made.shares(), trace.summary()
    steps = len(made.done()) - 1
    assert found == expected(made), verdict
    assert summary.step_us * steps == pytest.approx(shares["total"])
    assert summary.idle_share == pytest.approx(shares["idle"])
    assert 1 - summary.any_busy_us / summary.step_us == pytest.approx(shares["none"])
    assert summary.collective_us / summary.step_us == pytest.approx(shares["collective"])
    if found == "No verdict":
        check_reason(verdict, shares)
        return found
    said = float(re.search(r"is idle for (\d+)% of", verdict)[1])
    assert said == pytest.approx(100 * shares["idle"], abs=0.501)
    assert all(words in verdict for words in made.says), verdict
    assert (PAUSES in verdict) == (PAUSES in made.says)
    assert ("as when it waits for data" in verdict) == (shares["loading"] > LOADER_BOUND)
    if shares["collective"] > 0.011:
        said = float(re.search(r"for (\d+)% it runs only NCCL kernels", verdict)[1])
        assert said == pytest.approx(100 * shares["collective"], abs=0.501)
    saved, times = map(float, re.search(r"at most ([\d.]+) µs \(([\d.]+)x\)", verdict).groups())
    assert saved <= summary.step_us + 0.5 and times >= 1
    return found


def check(write_trace, kinds, seeds):
    ends = collections.defaultdict(collections.Counter)
    for kind in kinds:
        for seed in seeds:
            made = drawn(kind, seed)
            events = [*(marks(made) if made.steps else []), *made.events]
            random.Random(seed).shuffle(events)
            try:
                ends[kind.__name__][judge(made, write_trace(*events))] += 1
            except AssertionError as error:
                error.add_note(f"{kind.__name__}, seed {seed}")
                raise
    for name, counts in ends.items():
        print(name, dict(counts))
    return ends


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_an_odd_trace_gets_a_right_verdict_or_a_sentence(write_trace, kind):
    assert check(write_trace, [kind], range(5))


@pytest.mark.weekly
def test_two_thousand_odd_traces_get_no_wrong_verdict(write_trace):
    ends = check(write_trace, KINDS, range(5, 165))
    assert sum(map(collections.Counter.total, ends.values())) >= 2000
    for kind in (sound, without_device, another_gpu, pauses, stopped_late, loader_worker):
        assert min(ends[kind.__name__][bound] for bound in ("CPU-bound", "GPU-bound")) > 10
    for kind in (gpus_in_turns, waiting_collective):
        assert len(ends[kind.__name__]) == 3, "right verdicts of both kinds, and refused ones"
