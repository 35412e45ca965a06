"""The verdict on traces that are odd in one way is right, or refused in a sentence."""

import pytest

from tests.support.traces import event, kernel, launch, step


def steps(*busy_us, pause_us=0):
    """Three steps of 100 µs, in each of which the GPUs work in turn, each for so long."""
    events = []
    for number in range(3):
        begin = at = number * (100 + pause_us)
        events.append(step(number, begin, 100))
        for device, us in enumerate(busy_us):
            correlation = 10 * number + device
            events.append(launch(begin + 1 + device, correlation))
            events.append(kernel(at + 10, us, correlation, device=device))
            at += us
    return events


def without_a_device(events):
    """The last kernel does not say on which GPU it ran."""
    del events[-1]["args"]["device"]
    return events


def loading():
    """Three steps that launch twice, after they have waited for 60 of their 100 µs."""
    events = []
    for begin in (0, 100, 200):
        first = [launch(begin + 60, begin), kernel(begin + 65, 10, begin)]
        second = [launch(begin + 80, begin + 1), kernel(begin + 85, 5, begin + 1)]
        events += [step(begin, begin, 100), *first, *second]
    return events


COPY = [launch(150, 99, "cudaMemcpyAsync"), kernel(155, 1, 99, category="gpu_memcpy")]
VERDICTS = {
    "GPUs in turns": (
        steps(40, 40),
        "No verdict: 2 GPUs work in turns: the busiest one works for 40% of a traced step of "
        "100 µs, but at least one of them for 80%",
    ),
    "two idle GPUs": (steps(5, 4), "CPU-bound: the busiest of 2 GPUs is idle for 95% of a traced"),
    "a GPU that is not named": (
        without_a_device(steps(40, 40)),
        "No verdict: 1 GPU activities do not say on which of 2 GPUs they ran.",
    ),
    "a GPU that no step uses": (
        [*steps(90), kernel(5, 1, 99, device=3, category="gpu_memset")],
        "GPU-bound: the GPU is idle for 10%",
    ),
    "a GPU that one step uses": (
        [*steps(90), launch(5, 99), kernel(8, 1, 99, device=3)],
        "GPU-bound: the busiest of 2 GPUs is idle for 10%",
    ),
    "idle because of the profiler, perhaps": (
        steps(70),
        "No verdict: the GPU is idle for 30% of a traced step of 100 µs, but the profiler slows",
    ),
    "a wait for data": (
        loading(),
        "CPU-bound: the GPU is idle for 85% of a traced step of 100 µs; 71% of the idle time is "
        "before the step's first launch",
    ),
    "pauses": (
        steps(90, pause_us=50),
        "GPU-bound: the GPU is idle for 10% of a traced step of 100 µs; pauses between the steps "
        "take another 50 µs per step",
    ),
    "a worker that copies": (
        [*steps(90), *(one | {"pid": 2, "tid": 2} for one in COPY)],
        "GPU-bound: the GPU is idle for 10% of a traced step of 100 µs; the first of 3",
    ),
    "a last step that does not end": (
        [*steps(90), step(3, 300, 10_000)],
        "GPU-bound: the GPU is idle for 10% of a traced step of 100 µs",
    ),
    "less than a microsecond": (
        [step(0, 0, 0.5), launch(0, 1) | {"dur": 0.1}, kernel(0.05, 0.1, 1)],
        "No verdict: a step of 0.5 µs is too short to judge.",
    ),
    "a wait of another process": (
        [*steps(90), event("cuda_runtime", "cudaDeviceSynchronize", 20, 5) | {"pid": 2}],
        "GPU-bound: the GPU is idle for 10% of a traced step of 100 µs",
    ),
}


@pytest.mark.parametrize("name", VERDICTS)
def test_an_odd_trace_gets_a_right_verdict_or_a_sentence(read_events, name):
    events, begins = VERDICTS[name]
    assert read_events(*events).verdict().startswith(begins)
