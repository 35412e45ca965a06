"""Steps whose fault check did not see once, three of a kind: a function that makes the step and two
batches, the rule that is broken, and words of the line or the finding.

Kinds: counters however they begin, who reads a value that changes outside of the step, schedulers
that cycle the momentum, paths that part, graphs inside of the step, first calls that differ, names
of moved tensors, static inputs that cannot be written.
"""

import functools
import itertools
from collections import Counter

import torch


def batches():
    return (torch.ones(2, 4),), (torch.ones(2, 4) * 2,)


class ClassAttribute:
    n = 0

    def __call__(self, x):
        self.n += 1
        return x * 2


class MadeInTheFirstCall:
    def __call__(self, x):
        self.seen = getattr(self, "seen", 0) + 1
        return x * 2


def an_iterator():
    numbers = itertools.count()

    def step(x):
        return x * (next(numbers) % 2 == 0)

    return step


def a_counter_of_calls():
    calls = Counter()

    def step(x):
        calls["steps"] += 1
        return x * 2

    return step


def an_attribute_of_the_function():
    def step(x):
        step.calls = getattr(step, "calls", 0) + 1
        return x * 2

    return step


class Penalised:
    """Its counter was moved out of the step, into the loop."""

    def __init__(self):
        self.n = 0

    def __call__(self, x):
        loss = x.square().mean()
        if self.n % 4 == 0:  # a branch that the loop decides
            loss = loss + x.abs().mean()
        return loss

    def train(self, batches):
        for x in batches:
            self(x)
            self.n += 1


class Scaled:
    scale = 1.0

    def __call__(self, x):
        return x * self.scale  # a number that the loop changes

    def train(self, batches):
        for x in batches:
            self(x)
            self.scale *= 0.5


class Switched:
    with_l1 = False

    def __call__(self, x):
        loss = x.square().mean()
        return loss + x.abs().mean() if self.with_l1 else loss  # a flag that is set later

    def train(self, batches):
        for number, x in enumerate(batches):
            if number == 100:
                self.with_l1 = True
            self(x)


def _trained(optimizer, scheduler):
    model = torch.nn.Linear(4, 3)
    optimizer = optimizer(model.parameters())
    scheduler = scheduler(optimizer)

    def step(x):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()  # the optimizer of a scheduler

    step.scheduler = scheduler
    return step


def adamw(parameters):
    return torch.optim.AdamW(parameters, lr=torch.tensor(1e-3), capturable=True)


def one_cycle():
    one = functools.partial(torch.optim.lr_scheduler.OneCycleLR, max_lr=1e-2, total_steps=100)
    return _trained(adamw, one)


def cyclic():
    def scheduler(optimizer):
        return torch.optim.lr_scheduler.CyclicLR(optimizer, 1e-3, 1e-2)

    return _trained(
        lambda p: torch.optim.SGD(p, lr=torch.tensor(1e-3), momentum=0.9, fused=True), scheduler
    )


def one_cycle_after_others():
    def scheduler(optimizer):
        one = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1e-2, total_steps=100)
        constant = torch.optim.lr_scheduler.ConstantLR(optimizer)
        return torch.optim.lr_scheduler.ChainedScheduler([one, constant])

    return _trained(adamw, scheduler)


def paths_that_part():
    seen = [0]

    def step(x):
        seen[0] += 1
        x = x.relu() if seen[0] % 2 else x.tanh()
        return x * seen[0]

    return step


def compiled(**options):
    return lambda: functools.partial(torch.compile(torch.nn.Linear(4, 4), **options))


def a_workspace():
    @functools.lru_cache
    def scratch(size):
        return torch.empty(size)

    def step(x):
        return scratch(x.numel()).copy_(x.flatten()).sum()

    return step


def a_table_made_once():
    tables = {}

    def step(x):
        if "positions" not in tables:
            tables["positions"] = torch.arange(4.0)
        return x + tables["positions"]

    return step


class Lazy:
    weight = None

    def __call__(self, x):
        if self.weight is None:
            self.weight = torch.ones(4)
        return x * self.weight


def of_dicts(key):
    def make():
        def step(data):
            h = torch.tanh(data["h"] + data["x"])
            data["y"] = h.sum(-1)
            data["h"] = h  # an output under the name of an input

        return step, *(({"x": torch.ones(4, 3), "h": torch.full((4, 3), h)},) for h in (1.0, -1.0))

    return make


def of_a_list():
    def step(states):
        states[0] = states[0] * 2

    return step, ([torch.ones(3)],), ([torch.ones(3) * 2],)


def under_inference_mode():
    with torch.inference_mode():
        x = torch.ones(2, 4)
    return (lambda x: x * 2), (x,), (torch.ones(2, 4),)


def inference_in_a_dict():
    with torch.inference_mode():
        x = torch.ones(2, 4)
    return (lambda batch: batch["x"] * 2), ({"x": x},), ({"x": torch.ones(2, 4)},)


def with_a_gradient():
    def batch():
        return (torch.ones(2, 4, requires_grad=True),)

    return (lambda x: (x * 2).sum().backward()), batch(), batch()


STEPS = [  # what makes the step, the rule, words
    (ClassAttribute, "CPU work", "n changes"),
    (MadeInTheFirstCall, "CPU work", "seen changes"),
    (an_iterator, "CPU work", "numbers changes"),
    (a_counter_of_calls, "CPU work", "calls['steps'] changes"),
    (an_attribute_of_the_function, "CPU work", "calls changes"),
    (Penalised, "path", "a branch that the loop decides"),
    (Scaled, "frozen number", "a number that the loop changes"),
    (Switched, "path", "a flag that is set later"),
    (one_cycle, "frozen number", "cycle_momentum=False"),
    (cyclic, "frozen number", "cycle_momentum=False"),
    (one_cycle_after_others, "frozen number", "cycle_momentum=False"),
    (paths_that_part, "path", "what follows was not compared"),
    (compiled(mode="reduce-overhead"), "graph", "reduce-overhead"),
    (compiled(backend="cudagraphs"), "graph", "cudagraphs"),
    (compiled(options={"triton.cudagraphs": True}), "graph", "triton.cudagraphs"),
    (of_dicts("h"), "moved tensor", "inputs[0]['h'] is at another address"),
    (of_a_list, "moved tensor", "inputs[0][0] is at another address"),
    (under_inference_mode, "inputs", "inputs[0]"),
    (inference_in_a_dict, "inputs", "inputs[0]['x']"),
    (with_a_gradient, "inputs", "inputs[0]"),
]
AT_FIRST = [(a_workspace, "empty"), (a_table_made_once, "arange"), (Lazy, "ones")]
