"""What some rules of a capture are for: each one kept, and each one broken.

    python -m benchmarks.capture_rules

It needs a CUDA GPU. The other thread and the garbage collector are made to act while the capture is
open, where otherwise they do by chance. *Capture your own script* teaches the rules.
"""

import gc
import threading
from collections.abc import Callable
from contextlib import nullcontext

import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss

from examples.train_mlp import GraphedStep, capturing
from helpers.capture import capture_step

STEPS, EVERY = 12, 4


def make_batches() -> list[tuple[Tensor, Tensor]]:
    """Two micro-batches of 16 rows for every step."""
    generator = torch.Generator("cuda").manual_seed(1)
    inputs = torch.randn(STEPS, 2, 16, 8, device="cuda", generator=generator)
    targets = torch.randn(STEPS, 2, 16, 4, device="cuda", generator=generator)
    return list(zip(inputs, targets, strict=True))


def make_training() -> tuple[nn.Module, torch.optim.AdamW]:
    """A small model, and an optimizer that can be captured."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)).cuda()
    lr = torch.tensor(0.01, device="cuda")
    return model, torch.optim.AdamW(model.parameters(), lr=lr, capturable=True, fused=True)


def count_equal(losses: list[Tensor], eager: list[Tensor]) -> str:
    """How many losses are equal to the eager ones."""
    equal = sum(map(torch.equal, losses, eager))
    return f"{equal} of {len(eager)} losses equal"


def every_nth_step(kept: bool) -> str:
    """Capture a graph for each branch, or one graph of a step that branches in Python."""

    def train(graphed, graphs):
        model, optimizer = make_training()
        number = 0

        def step(inputs, targets, penalise=None):
            optimizer.zero_grad(set_to_none=True)
            loss = mse_loss(model(inputs), targets)
            if number % EVERY == EVERY - 1 if penalise is None else penalise:
                loss = loss + sum(weight.square().sum() for weight in model.parameters())
            loss.backward()
            optimizer.step()
            return loss.detach()

        steps = {False: step, True: step}
        if graphed and graphs == 1:
            steps = dict.fromkeys(steps, GraphedStep(step))
        elif graphed:
            steps[False] = GraphedStep(lambda *batch: step(*batch, penalise=False))
            steps[True] = GraphedStep(lambda *batch: step(*batch, penalise=True))
        losses = []
        for number, batch in enumerate(make_batches()):  # step reads number
            losses.append(steps[number % EVERY == EVERY - 1](*batch))
        return losses

    return count_equal(train(True, 2 if kept else 1), train(False, 2))


def next_to(work: Callable[[], object], mode: str, lock: bool = False) -> str:
    """Capture an addition while another thread does some work; with a lock, the thread waits."""
    turn: threading.Lock | nullcontext = threading.Lock() if lock else nullcontext()
    failed = []

    def other():
        try:
            with turn:
                work()
        except RuntimeError as error:
            failed.append(f"the thread fails: {first_line(error)}")

    x = torch.ones(4, device="cuda")
    graph = torch.cuda.CUDAGraph()
    thread = threading.Thread(target=other)
    with turn, torch.cuda.graph(graph, capture_error_mode=mode):
        y = x + 1
        thread.start()
        if not lock:
            thread.join()
    thread.join()
    graph.replay()
    return "; ".join([*failed, f"replays {y.tolist()}"])


def pinning_thread(kept: bool) -> str:
    """capture_error_mode="thread_local", or the default, while a thread pins memory."""
    return next_to(
        lambda: torch.empty(2**22, pin_memory=True), "thread_local" if kept else "global"
    )


def waiting_thread(kept: bool) -> str:
    """A lock, or thread_local alone, while a thread waits for the whole GPU."""
    return next_to(torch.cuda.synchronize, "thread_local", lock=kept)


def collection(kept: bool) -> str:
    """No garbage collection in the capture, or one that destroys an older graph."""
    thresholds = gc.get_threshold()

    def add_one(x):
        gc.set_threshold(1)
        _ = [[[]] for _ in range(1000)]  # allocations, each of which starts a collection
        gc.set_threshold(10**8)
        return x + 1

    x = torch.ones(4, device="cuda")
    try:
        gc.set_threshold(10**8)  # the garbage lasts until the capture
        old = capture_step(lambda x: x * 2, x.clone())
        old.circle = old  # type: ignore[attr-defined]  # only the garbage collector can free it
        del old
        graph = torch.cuda.CUDAGraph()
        with capturing(graph) if kept else torch.cuda.graph(graph):
            y = add_one(x)
        graph.replay()
        return f"replays {y.tolist()}"
    finally:
        gc.set_threshold(*thresholds)


def first_line(error: BaseException) -> str:
    """The first line of an error, or of the one that caused it."""
    return str(error.__context__ or error).splitlines()[0]


def outcome(rule: Callable[[bool], str], kept: bool) -> str:
    """What becomes of a capture with a rule or without it."""
    try:
        return rule(kept)
    except RuntimeError as error:
        return f"raises {first_line(error)}"
    finally:
        torch.cuda.synchronize()


# A failed capture may leave more behind: these come last.
RULES = [every_nth_step, pinning_thread, waiting_thread, collection]


def main() -> None:
    """Print a line for each rule, kept and broken."""
    for rule in RULES:
        print(rule.__name__)
        for kept in (True, False):
            print("   kept  " if kept else "   broken", outcome(rule, kept))


if __name__ == "__main__":
    main()
