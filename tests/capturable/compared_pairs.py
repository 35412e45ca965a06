"""Pairs of factories for compare: of an eager step, and of one with graphs that is wrong, or right
in an unusual way."""

from functools import partial

import torch
from torch.nn import functional as F

from helpers.capture import capture_step, unchanged


def _graphed(step, *samples, **options):
    replay = capture_step(step, *samples, **options)
    return lambda *batch: replay(*batch).clone()


def _trained(**settings):
    """A model, an optimizer that has its state, and a batch."""
    model = torch.nn.Linear(4, 3).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), **{"lr": 0.01, "capturable": True} | settings)
    return model, optimizer, torch.randn(6, 4, device="cuda")


def _step(model, optimizer):
    def step(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    return step


def training():
    model, optimizer, x = _trained()
    return _step(model, optimizer), x


def training_from_the_warm_up_on():
    step, x = training()
    return _graphed(step, x), x


def scaling():
    weight = torch.randn(4, device="cuda")
    return (lambda x: x * weight), *torch.randn(3, 2, 4, device="cuda")


def scaling_into_one_result():
    step, x, *_ = scaling()
    return capture_step(step, x)


def scaling_without_a_wait():
    """The result is copied on another stream, which does not wait for the replay."""
    eager, x, *_ = scaling()
    replay = capture_step(eager, x)
    side, landing = torch.cuda.Stream(), torch.zeros(2, 4).pin_memory()

    def step(x):
        result = replay(x)
        with torch.cuda.stream(side):
            landing.copy_(result, non_blocking=True)
        side.synchronize()
        return landing.clone()

    return step, x


def scheduled(graph=False, **settings):
    """A scheduler sets the rate after each step; with a graph, the optimizer's step is in it."""
    model, optimizer, x = _trained(**settings)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    train = _step(model, optimizer)
    if graph:
        with unchanged(model, optimizer):
            train = _graphed(train, x)

    def step(x):
        loss = train(x)
        scheduler.step()
        return loss

    return step, x


def scheduled_with_a_rate_on_the_gpu():
    return scheduled(graph=True, lr=torch.tensor(0.01, device="cuda"))


def averaging():
    model = torch.nn.Linear(4, 3).cuda()
    batches = [torch.randn(size, 4, device="cuda") for size in (4, 2, 3)]
    return torch.no_grad()(lambda x: F.softmax(model(x).mean(0), -1)), *batches


def averaging_what_is_padded():
    eager, padded, *_ = averaging()
    replay = capture_step(eager, padded)

    def step(x):
        padded[: len(x)].copy_(x)
        return replay().clone()

    return step


def averaging_behind_a_mask():
    """Rows behind the real ones hold whatever they hold; a mask keeps them out of the mean."""
    model = torch.nn.Linear(4, 3).cuda()
    padded = torch.zeros(4, 4, device="cuda")
    rows = torch.arange(4, device="cuda")[:, None]
    length = torch.ones((), device="cuda")

    @torch.no_grad()
    def masked(x):
        return F.softmax(torch.where(rows < length, model(x), 0).sum(0) / length, -1)

    replay = capture_step(masked, padded)

    def step(x):
        padded[: len(x)].copy_(x)
        length.fill_(len(x))
        return replay().clone()

    return step


def averaging_with_other_weights():
    torch.randn(4)
    return averaging()


def penalising_every_second_step():
    model, _, x = _trained()
    steps = 0

    def step(x):
        nonlocal steps
        steps += 1
        loss = model(x).square().mean()
        if steps % 2 == 0:
            loss = loss + model.weight.abs().sum()
        return loss.detach()

    return step, x


def penalising_as_in_the_capture():
    eager, x = penalising_every_second_step()
    return _graphed(eager, x), x


def _accumulating(model, backward):
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def step(x):
        optimizer.zero_grad()
        for micro_batch in x.chunk(2):
            backward(micro_batch)
        optimizer.step()

    return step


def accumulating():
    model = torch.nn.Linear(4, 3).cuda()
    step = _accumulating(model, lambda x: model(x).square().mean().backward())
    return step, torch.randn(6, 4, device="cuda")


def accumulating_in_memory_of_the_graph():
    """The first gradient is memory of the backward graph, which the second replay overwrites."""
    model = torch.nn.Linear(4, 3).cuda()
    graphed = torch.cuda.make_graphed_callables(model, (torch.randn(3, 4, device="cuda"),))
    return _accumulating(model, lambda x: graphed(x).square().mean().backward())


def accumulating_what_is_lost():
    """zero_grad() takes the gradients to which the graph adds."""
    model = torch.nn.Linear(4, 3).cuda()
    static_x = torch.randn(3, 4, device="cuda")
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    backward = capture_step(lambda x: model(x).square().mean().backward(), static_x, warmup=0)
    return _accumulating(model, backward)


def moving_average():
    average = {"of": torch.zeros(4, device="cuda")}

    def step(x):
        average["of"] = 0.9 * average["of"] + 0.1 * x.mean(0)
        return x - average["of"]

    return step, torch.randn(6, 4, device="cuda")


def moving_average_of_the_capture():
    eager, x = moving_average()
    return _graphed(eager, x, warmup=0)


def noisy(graph=False):
    """Nothing but gradients is the result; with a graph, they are there from the capture on."""
    generator = torch.Generator("cuda").manual_seed(3)
    model = torch.nn.Linear(4, 3).cuda()
    x = torch.randn(6, 4, device="cuda")

    def step(x):
        model.zero_grad()
        noise = torch.empty_like(x).normal_(generator=generator)
        model(x + noise).square().mean().backward()

    return (capture_step(step, x, warmup=0, generators=[generator]) if graph else step), x


def regression():
    model = torch.nn.Linear(4, 3).cuda()
    batches = [tuple(torch.randn(2, size, device="cuda") for size in (4, 3)) for _ in range(2)]
    return torch.no_grad()(lambda x, y: (model(x) - y).square().mean()), *batches


def regression_on_the_first_targets():
    eager, (static_x, y), _ = regression()
    replay = capture_step(eager, static_x, y)

    def step(x, y):
        static_x.copy_(x)
        return replay().clone()

    return step


def dropout():
    model = torch.nn.Dropout(0.5)
    return (lambda x: model(x)), torch.ones(6, 4, device="cuda")


def dropout_warmed_up_late():
    """The warm-up of the first call draws, and nobody restores the random state."""
    (eager, x), captured = dropout(), []

    def step(new_x):
        if not captured:
            captured.append(_graphed(eager, x))
        return captured[0](new_x)

    return step


UNREAD = "Rebound static input: the step with graphs does not read args[1] of a batch"
IN_GRAPH_MEMORY = "Gradient accumulation into graph memory"
WRONG = [  # what differs first, the cause that is named, and the two factories
    ("construction", "Side effects of the warm-up", training, training_from_the_warm_up_on),
    ("later", "Overwritten static output", scaling, scaling_into_one_result),
    ("state", "Frozen learning rate", scheduled, partial(scheduled, graph=True)),
    ("result", "Padding that reaches a result", averaging, averaging_what_is_padded),
    ("result", "Frozen branch", penalising_every_second_step, penalising_as_in_the_capture),
    ("result", "race: ", scaling, scaling_without_a_wait),
    ("state", IN_GRAPH_MEMORY, accumulating, accumulating_in_memory_of_the_graph),
    ("construction", "State not updated in place", moving_average, moving_average_of_the_capture),
    ("result", UNREAD, regression, regression_on_the_first_targets),
    ("state", "gradients lost", accumulating, accumulating_what_is_lost),
    ("construction", "draw other random numbers", averaging, averaging_with_other_weights),
    ("result", "because call 1 captures a graph", dropout, dropout_warmed_up_late),
]
RIGHT = [
    (averaging, averaging_behind_a_mask, {"pad": ["padded"]}),
    (partial(scheduled, capturable=False), scheduled_with_a_rate_on_the_gpu, {}),
    (noisy, partial(noisy, graph=True), {}),
]
