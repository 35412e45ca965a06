"""Pairs of steps for compare: an eager one, and one with graphs that is wrong, or right in an
unusual way. Each function is a factory."""

import torch
from torch.nn import functional as F

RIGHT = ("padded_and_masked", "other_optimizer_settings", "gradients_of_noisy_inputs")
WRONG = {  # the pair -> what differs first, and the cause that is named
    "batch_not_copied": ("result", "Rebound static input"),
    "warmup_that_trains": ("construction", "Side effects of the warm-up"),
    "results_kept": ("later", "Overwritten static output"),
    "rate_of_the_capture": ("state", "Frozen learning rate"),
    "padding_in_the_mean": ("result", "Padding that reaches a result"),
    "penalty_every_second_step": ("result", "Frozen branch"),
    "copy_without_a_wait": ("result", "race: "),
    "gradients_added_up": ("state", "Gradient accumulation into graph memory"),
    "average_rebound": ("construction", "State not updated in place"),
    "targets_not_copied": ("result", "does not read args[1] of a batch"),
    "gradients_lost": ("state", "gradients lost"),
    "drawn_in_another_order": ("construction", "draw other random numbers"),
    "dropout_warmed_up_late": ("result", "because call 1 captures a graph"),
}
OPTIONS = {"padded_and_masked": {"pad": ["padded"]}}


def _captured(step, *samples, warmup=2):
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(warmup):
            step(*samples)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = step(*samples)
    return graph, result


def _replaying(graph, static_x, result, *kept, after=None):
    """A step that replays the graph on a batch, and keeps what the eager step has."""

    def step(x, kept=kept):
        static_x[: len(x)].copy_(x)
        graph.replay()
        if after:
            after()
        return result.clone()

    return step


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


def _graph_without_trace(model, optimizer, step, *samples):
    """A capture after which weights and optimizer state are those of before."""
    weights = [tensor.detach().clone() for tensor in model.state_dict().values()]
    graph, result = _captured(step, *samples)
    with torch.no_grad():
        for tensor, before in zip(model.state_dict().values(), weights, strict=True):
            tensor.copy_(before)
        for state in optimizer.state.values():
            for tensor in state.values():
                tensor.zero_()
    return graph, result


def eager_batch_not_copied():
    model = torch.nn.Linear(4, 3).cuda()
    return torch.no_grad()(lambda x: model(x).relu()), *torch.randn(3, 2, 4, device="cuda")


def graphed_batch_not_copied():
    model = torch.nn.Linear(4, 3).cuda()
    static_x = torch.randn(2, 4, device="cuda")
    with torch.no_grad():
        graph, result = _captured(lambda x: model(x).relu(), static_x)

    def step(x, static_x=static_x, model=model):
        static_x = x  # noqa: F841  a new tensor under the old name
        graph.replay()
        return result.clone()

    return step, static_x


def eager_warmup_that_trains():
    model, optimizer, x = _trained()
    return _step(model, optimizer), x


def graphed_warmup_that_trains():
    model, optimizer, x = _trained()
    graph, loss = _captured(_step(model, optimizer), x)
    return _replaying(graph, x, loss, model, optimizer), x


def eager_results_kept():
    weight = torch.randn(4, device="cuda")
    return (lambda x: x * weight), *torch.randn(3, 2, 4, device="cuda")


def graphed_results_kept():
    weight = torch.randn(4, device="cuda")
    static_x = torch.randn(2, 4, device="cuda")
    graph, result = _captured(lambda x: x * weight, static_x)

    def step(x, weight=weight):
        static_x.copy_(x)
        graph.replay()
        return result

    return step


def eager_rate_of_the_capture(**settings):
    model, optimizer, x = _trained(**settings)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    train = _step(model, optimizer)

    def step(x):
        loss = train(x)
        scheduler.step()
        return loss

    return step, x


def graphed_rate_of_the_capture(**settings):
    model, optimizer, x = _trained(**settings)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    graph, loss = _graph_without_trace(model, optimizer, _step(model, optimizer), x)
    return _replaying(graph, x, loss, model, after=scheduler.step), x


def eager_padding_in_the_mean():
    model = torch.nn.Linear(4, 3).cuda()
    sizes = (4, 2, 3)
    batches = [torch.randn(size, 4, device="cuda") for size in sizes]
    return torch.no_grad()(lambda x: F.softmax(model(x).mean(0), -1)), *batches


def graphed_padding_in_the_mean():
    model = torch.nn.Linear(4, 3).cuda()
    padded = torch.zeros(4, 4, device="cuda")
    with torch.no_grad():
        graph, result = _captured(lambda x: F.softmax(model(x).mean(0), -1), padded)
    return _replaying(graph, padded, result, model)


def eager_penalty_every_second_step():
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


def graphed_penalty_every_second_step():
    eager, x = eager_penalty_every_second_step()
    graph, loss = _captured(eager, x)
    return _replaying(graph, x, loss, eager), x


def eager_padded_and_masked():
    model = torch.nn.Linear(4, 3).cuda()
    batches = [torch.randn(size, 4, device="cuda") for size in (4, 2, 3)]
    return torch.no_grad()(lambda x: (model(x), model(x).mean(0))), *batches


def graphed_padded_and_masked():
    """Rows behind the real ones hold whatever they hold; a mask keeps them out of the mean."""
    model = torch.nn.Linear(4, 3).cuda()
    padded = torch.zeros(4, 4, device="cuda")
    rows = torch.arange(4, device="cuda")[:, None]
    length = torch.ones((), device="cuda")

    def masked(x):
        y = model(x)
        return y, torch.where(rows < length, y, 0).sum(0) / length

    with torch.no_grad():
        graph, (y, mean) = _captured(masked, padded)

    def step(x, model=model, rows=rows):
        padded[: len(x)].copy_(x)
        length.fill_(len(x))
        graph.replay()
        return y[: len(x)].clone(), mean.clone()

    return step


def eager_other_optimizer_settings():
    return eager_rate_of_the_capture(capturable=False)


def graphed_other_optimizer_settings():
    """The optimizer in the graph, with a rate on the GPU that the scheduler fills between
    replays."""
    return graphed_rate_of_the_capture(lr=torch.tensor(0.01, device="cuda"))


def eager_copy_without_a_wait():
    weight = torch.randn(4, device="cuda")
    return (lambda x: (x * weight).cpu()), *torch.randn(3, 2, 4, device="cuda")


def graphed_copy_without_a_wait():
    """The result is copied on another stream, which does not wait for the replay."""
    weight, static_x = torch.randn(4, device="cuda"), torch.randn(2, 4, device="cuda")
    graph, result = _captured(lambda x: x * weight, static_x)
    side, landing = torch.cuda.Stream(), torch.zeros(2, 4).pin_memory()

    def step(x, weight=weight):
        static_x.copy_(x)
        graph.replay()
        with torch.cuda.stream(side):
            landing.copy_(result, non_blocking=True)
        side.synchronize()
        return landing.clone()

    return step, static_x


def eager_gradients_added_up():
    model = torch.nn.Linear(4, 3).cuda()
    return _two_micro_batches(model, model), torch.randn(6, 4, device="cuda")


def graphed_gradients_added_up():
    """The first gradient is memory of the backward graph, which the second replay overwrites."""
    model = torch.nn.Linear(4, 3).cuda()
    graphed = torch.cuda.make_graphed_callables(model, (torch.randn(3, 4, device="cuda"),))
    return _two_micro_batches(model, graphed)


def _two_micro_batches(model, forward):
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def step(x):
        optimizer.zero_grad()
        for micro_batch in x.chunk(2):
            forward(micro_batch).square().mean().backward()
        optimizer.step()

    return step


def eager_average_rebound():
    average = {"of": torch.zeros(4, device="cuda")}

    def step(x):
        average["of"] = 0.9 * average["of"] + 0.1 * x.mean(0)
        return x - average["of"]

    return step, torch.randn(6, 4, device="cuda")


def graphed_average_rebound():
    eager, x = eager_average_rebound()
    graph, result = _captured(eager, x, warmup=0)
    return _replaying(graph, x, result, eager)


def _noisy(generator):
    model = torch.nn.Linear(4, 3).cuda()

    def step(x):
        model.zero_grad()
        noise = torch.empty_like(x).normal_(generator=generator)
        model(x + noise).square().mean().backward()

    return step, model


def eager_gradients_of_noisy_inputs():
    generator = torch.Generator("cuda").manual_seed(3)
    return _noisy(generator)[0], torch.randn(6, 4, device="cuda")


def graphed_gradients_of_noisy_inputs():
    """Nothing but gradients is the result, and they are there from the capture on."""
    generator, graph = torch.Generator("cuda").manual_seed(3), torch.cuda.CUDAGraph()
    eager, model = _noisy(generator)
    x = torch.randn(6, 4, device="cuda")
    graph.register_generator_state(generator)
    with torch.cuda.graph(graph):
        eager(x)

    def step(new_x, model=model, generator=generator):
        x.copy_(new_x)
        graph.replay()

    return step


def eager_targets_not_copied():
    model = torch.nn.Linear(4, 3).cuda()
    batches = [tuple(torch.randn(2, size, device="cuda") for size in (4, 3)) for _ in range(2)]
    return torch.no_grad()(lambda x, y: (model(x) - y).square().mean()), *batches


def graphed_targets_not_copied():
    eager, (x, y), _ = eager_targets_not_copied()
    graph, loss = _captured(eager, x, y)
    replaying = _replaying(graph, x, loss, eager, y)
    return lambda x, y: replaying(x)


def eager_gradients_lost():
    model = torch.nn.Linear(4, 3).cuda()
    return _two_micro_batches(model, model), torch.randn(6, 4, device="cuda")


def graphed_gradients_lost():
    """zero_grad() takes the gradients to which the graph adds."""
    model = torch.nn.Linear(4, 3).cuda()
    static_x = torch.randn(3, 4, device="cuda")
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    graph, _ = _captured(lambda x: model(x).square().mean().backward(), static_x, warmup=0)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def step(x):
        optimizer.zero_grad()
        for micro_batch in x.chunk(2):
            static_x.copy_(micro_batch)
            graph.replay()
        optimizer.step()

    return step


def eager_drawn_in_another_order():
    model = torch.nn.Linear(4, 3).cuda()
    return torch.no_grad()(lambda x: model(x)), torch.randn(2, 4, device="cuda")


def graphed_drawn_in_another_order():
    torch.randn(4)
    return eager_drawn_in_another_order()


def eager_dropout_warmed_up_late():
    model = torch.nn.Dropout(0.5)
    return (lambda x: model(x)), torch.ones(6, 4, device="cuda")


def graphed_dropout_warmed_up_late():
    """The warm-up of the first call draws, and nobody restores the random state."""
    (eager, x), captured = eager_dropout_warmed_up_late(), []

    def step(new_x):
        if not captured:
            graph, result = _captured(eager, x)
            captured.append(_replaying(graph, x, result, eager))
        return captured[0](new_x)

    return step
