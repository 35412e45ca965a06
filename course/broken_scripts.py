"""The ten scripts of *Ten broken scripts* as the lesson publishes them, faults included.

The lesson runs these on the GPU, whatever a reader has made of the cells; a test holds both equal.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch.nn.functional import mse_loss
from torch.nn.utils import clip_grad_norm_

from helpers.capture import capture_step, unchanged


def warm_up(step, times=3):
    """Run a step a few times on a side stream, before its capture."""
    side_stream = torch.cuda.Stream()
    side_stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side_stream):
        for _ in range(times):
            step()
    torch.cuda.current_stream().wait_stream(side_stream)


def guide(model, calls):
    """An image for each call, which is a dict of a tensor and a dict of tensors."""
    static = {"noise": calls[0]["noise"].clone(), "added": dict(calls[0]["added"])}
    with torch.no_grad():
        warm_up(lambda: model(**static))
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            image = model(**static)
    images = []
    for call in calls:
        for name, value in call.items():
            if torch.is_tensor(value):
                static[name].copy_(value)
        graph.replay()
        images.append(image.clone())
    return images


def fine_tune(model, optimizer, batches):
    """The loss of each batch."""
    x, y = (tensor.clone() for tensor in batches[0])

    def step():
        optimizer.zero_grad()
        loss = mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    warm_up(step)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step()
    losses = []
    for batch in batches:
        x.copy_(batch[0])
        y.copy_(batch[1])
        graph.replay()
        losses.append(loss.clone())
    return losses


def accumulate(model, optimizer, batches):
    """The loss of each batch; a step of the optimizer after every two."""
    graphed = torch.cuda.make_graphed_callables(model, (batches[0][0].clone(),))
    losses = []
    for number, (x, y) in enumerate(batches):
        if number % 2 == 0:
            optimizer.zero_grad()
        loss = mse_loss(graphed(x), y)
        loss.backward()
        losses.append(loss.detach())
        if number % 2 == 1:
            optimizer.step()
    return losses


def train_in_parts(model, optimizer, batches):
    """The loss of each batch; the second of the model's three parts is a graph."""
    with torch.no_grad():
        sample = model[0](batches[0][0])
    model[1] = torch.cuda.make_graphed_callables(model[1], (sample,))
    losses = []
    for x, y in batches:
        optimizer.zero_grad()
        loss = mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return losses


def train_seeded(model, optimizer, batches):
    """The loss of each batch; step n draws its dropout from seed n, counted from one."""
    x, y = (tensor.clone() for tensor in batches[0])

    def step(number):
        torch.cuda.manual_seed(number)
        optimizer.zero_grad()
        loss = mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    with unchanged(model, optimizer):
        warm_up(lambda: step(0))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step(1)
    losses = []
    for inputs, targets in batches:
        x.copy_(inputs)
        y.copy_(targets)
        graph.replay()
        losses.append(loss.clone())
    return losses


def ensemble(models, requests):
    """The mean of the models' scores for each request; the graphs share one memory pool."""
    x = requests[0].clone()
    pool = torch.cuda.graph_pool_handle()
    captured = []
    with torch.no_grad():
        for model in reversed(models):
            warm_up(partial(model, x))
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=pool):
                scores = model(x)
            captured.append((graph, scores))
    answers = []
    for request in requests:
        x.copy_(request)
        for graph, _ in reversed(captured):
            graph.replay()
        answers.append(torch.stack([scores for _, scores in reversed(captured)]).mean(0))
    return answers


def train_careful(model, optimizer, batches, limit):
    """The loss of each batch; no step if the gradients' norm is above the limit or not finite."""
    x, y = (tensor.clone() for tensor in batches[0])

    def step():
        optimizer.zero_grad()
        loss = mse_loss(model(x), y)
        loss.backward()
        norm = clip_grad_norm_(model.parameters(), 1.0)
        if norm <= limit:
            optimizer.step()
        return loss.detach()

    with unchanged(model, optimizer):
        warm_up(step)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step()
    losses = []
    for inputs, targets in batches:
        x.copy_(inputs)
        y.copy_(targets)
        graph.replay()
        losses.append(loss.clone())
    return losses


def generate(model, first_token, eos_token, max_new_tokens):
    """The tokens that follow the first one, up to and with eos_token; at most max_new_tokens."""
    token = first_token.clone()

    def step(position):
        return model(token, position).argmax(-1)

    warm_up(partial(step, 0))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        next_token = step(0)
    text = []
    while len(text) < max_new_tokens and eos_token not in text:
        graph.replay()
        token.copy_(next_token)
        text.append(token.item())
    return text


def serve(model, requests):
    """The answer to each request, 8 numbers; a request has the shape (length, 8), length <= 64."""
    graphs = {}
    answers = []
    for request in requests:
        length = len(request)
        if length not in graphs:
            x = request.clone()
            count = torch.tensor(length, device="cuda")
            with torch.no_grad():
                warm_up(partial(model, x, count))
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph):
                    answer = model(x, count)
            graphs[length] = graph, x, count, answer
        graph, x, count, answer = graphs[length]
        x.copy_(request)
        graph.replay()
        answers.append(answer.clone())
    return answers


def train_scheduled(model, batches):
    """The loss of each batch, at a learning rate that is halved after every two."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05, capturable=True)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.5)
    x, y = (tensor.clone() for tensor in batches[0])

    def step():
        optimizer.zero_grad()
        loss = mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    with unchanged(model, optimizer):
        replay = capture_step(step)
    losses = []
    for inputs, targets in batches:
        x.copy_(inputs)
        y.copy_(targets)
        losses.append(replay().clone())
        scheduler.step()
    return losses


BROKEN: dict[str, Callable] = {
    "guide": guide,
    "fine_tune": fine_tune,
    "accumulate": accumulate,
    "train_in_parts": train_in_parts,
    "train_seeded": train_seeded,
    "ensemble": ensemble,
    "train_careful": train_careful,
    "generate": generate,
    "serve": serve,
    "train_scheduled": train_scheduled,
}
