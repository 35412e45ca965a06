"""Other threads: they pin, draw and launch beside the thread that captures."""

import threading

import torch
from torch.utils.data import DataLoader

from tests.cpu_graph.conformance.common import captured, ones
from tests.cpu_graph.conformance.outcomes import program, said

REFUSED = "AcceleratorError: CUDA error: operation not permitted when stream is capturing"
LATER = "AcceleratorError: CUDA error: operation failed due to a previous error during capture"


def beside_a_capture(function, mode):
    """How a function ends in another thread during a capture, and how the capture ends."""
    x, told = ones(4), []

    def both():
        y = x * 2
        worker = threading.Thread(target=lambda: told.append(said(function)))
        worker.start()
        worker.join()
        return y + 1

    return [said(lambda: captured(both, capture_error_mode=mode)()), *told]


def pin():
    """More than any cached block holds, so that the driver has to pin it."""
    return torch.empty(3 << 20).pin_memory()


def draw():
    return torch.randn(8, device="cuda")


@program(["no error", "no error"])
def a_thread_draws_beside_a_capture_of_its_thread_alone():
    draw()
    return beside_a_capture(draw, "thread_local")


@program([LATER, REFUSED])
def a_thread_pins_beside_a_global_capture():
    return beside_a_capture(pin, "global")


@program(["no error", "no error"])
def a_thread_pins_beside_a_capture_of_its_thread_alone():
    return beside_a_capture(pin, "thread_local")


@program(LATER)
def a_thread_waits_for_the_device_beside_a_capture_of_its_thread_alone():
    return beside_a_capture(torch.cuda.synchronize, "thread_local")[0]


@program([6, 6])
def a_thread_adds_to_a_tensor_that_a_graph_reads():
    x = ones(2)
    replay = captured(lambda: x * 2)
    worker = threading.Thread(target=lambda: (x.add_(2), torch.cuda.synchronize()))
    worker.start()
    worker.join()
    return replay()


@program([1, 5, 9])
def a_worker_loads_and_a_thread_pins():
    static = torch.zeros(2, device="cuda")
    replay = captured(lambda: static.sum())
    loader = DataLoader(torch.arange(6.0), batch_size=2, num_workers=1, pin_memory=True)
    totals = []
    for batch in loader:
        static.copy_(batch, non_blocking=True)
        totals.append(int(replay().item()))
    return totals
