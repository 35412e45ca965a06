"""Answers to the exercises of *Ten broken scripts*: wrong ones, and other right ones (`__right_`)."""


def guide__captures_in_every_call(model, calls):
    images = []
    for call in calls:
        graph = torch.cuda.CUDAGraph()
        with torch.no_grad(), torch.cuda.graph(graph):
            image = model(**call)
        graph.replay()
        images.append(image.clone())
    return images


def guide__runs_eagerly(model, calls):
    with torch.no_grad():
        return [model(**call) for call in calls]


def guide__right_with_capture_step(model, calls):
    def step(noise, text, size):
        return model(noise, {"text": text, "size": size})

    def flat(call):
        return call["noise"], call["added"]["text"], call["added"]["size"]

    with torch.no_grad():
        replay = capture_step(step, *[tensor.clone() for tensor in flat(calls[0])])
    return [replay(*flat(call)).clone() for call in calls]


changed(
    guide,
    binds_the_dict_anew={
        "for name, value in call['added'].items():\n"
        "    static['added'][name].copy_(value)": "static['added'] = call['added']",
    },
    writes_into_the_callers_tensors={
        "static = {'noise': calls[0]['noise'].clone()}\n"
        "static['added'] = {name: value.clone() for name, value in calls[0]['added'].items()}":
            "static = calls[0]",
    },
)


changed(
    fine_tune,
    puts_the_weights_back_alone={
        "with unchanged(model, optimizer):\n    warm_up(step)":
            "before = {name: tensor.clone() for name, tensor in model.state_dict().items()}\n"
            "warm_up(step)\n"
            "model.load_state_dict(before)",
    },
)


changed(
    fine_tune__as_given,
    does_not_warm_up={"warm_up(step)": ""},
)


def accumulate__steps_after_every_batch(model, optimizer, batches):
    graphed = torch.cuda.make_graphed_callables(model, (batches[0][0].clone(),))
    losses = []
    for x, y in batches:
        optimizer.zero_grad()
        loss = mse_loss(graphed(x), y)
        loss.backward()
        losses.append(loss.detach())
        optimizer.step()
    return losses


changed(
    accumulate__as_given,
    has_no_gradients_at_first={"optimizer.zero_grad()": "optimizer.zero_grad(set_to_none=False)"},
    right_with_cloned_gradients={
        "losses.append(loss.detach())":
            "if number % 2 == 0:\n"
            "    for weight in model.parameters():\n"
            "        weight.grad = weight.grad.clone()\n"
            "…",
    },
)


changed(
    train_in_parts__as_given,
    takes_the_sample_with_gradients_on={
        "with torch.no_grad():\n"
        "    sample = model[0](batches[0][0])": "sample = model[0](batches[0][0]).detach()",
    },
    lets_the_output_require_a_gradient={
        "loss = mse_loss(model(x), y)": "loss = mse_loss(model(x).requires_grad_(), y)",
    },
)


changed(
    train_seeded,
    seeds_once={
        "losses = []": "…\ntorch.cuda.manual_seed(1)",
        "torch.cuda.manual_seed(number)": "",
    },
)


changed(
    train_seeded__as_given,
    is_at_that_seed_already={"graph = torch.cuda.CUDAGraph()": "torch.cuda.manual_seed(1)\n…"},
)


changed(
    ensemble__as_given,
    clones_too_late={"[scores for": "[scores.clone() for"},
    adds_up_in_the_last_scores={
        "for graph, _ in reversed(captured):": "for graph, _ in captured:",
        "answers.append(torch.stack([scores for _, scores in reversed(captured)]).mean(0))":
            "total = captured[-1][1]\n"
            "for _, scores in captured[:-1]:\n"
            "    total += scores\n"
            "answers.append(total.div_(len(models)))",
    },
    right_in_the_order_of_capture={
        "for graph, _ in reversed(captured):": "for graph, _ in captured:",
    },
    gives_each_graph_a_pool={
        "pool = torch.cuda.graph_pool_handle()": "",
        "with torch.cuda.graph(graph, pool=pool):": "with torch.cuda.graph(graph):",
    },
)


changed(
    train_careful,
    clips_and_steps_always={
        "norm = clip_grad_norm_(model.parameters(), 1.0)\n"
        "for weight in model.parameters():\n"
        "    weight.grad.copy_(torch.where(norm <= limit, weight.grad, 0))":
            "clip_grad_norm_(model.parameters(), min(1.0, limit))",
    },
    multiplies_by_the_comparison={
        ".grad.copy_(torch.where(norm <= limit, weight.grad, 0))": ".grad.mul_(norm <= limit)",
    },
    decides_in_the_warm_up={
        "def step():": "small = []\n…",
        "for weight in model.parameters():\n"
        "    weight.grad.copy_(torch.where(norm <= limit, weight.grad, 0))\n"
        "optimizer.step()":
            "if not torch.cuda.is_current_stream_capturing():\n"
            "    small.append(bool(norm <= limit))\n"
            "if small[-1]:\n"
            "    optimizer.step()",
    },
    asks_between_two_graphs={
        "for weight in model.parameters():\n"
        "    weight.grad.copy_(torch.where(norm <= limit, weight.grad, 0))\n"
        "optimizer.step()\n"
        "return loss.detach()": "return (loss.detach(), norm)",
        "with torch.cuda.graph(graph):\n    loss = step()":
            "with torch.cuda.graph(graph):\n"
            "    loss, norm = step()\n"
            "update = torch.cuda.CUDAGraph()\n"
            "with torch.cuda.graph(update):\n"
            "    optimizer.step()",
        "graph.replay()":
            "…\n"
            "if norm.item() <= limit:\n"
            "    update.replay()",
    },
    right_with_the_old_weights={
        "for weight in model.parameters():\n"
        "    weight.grad.copy_(torch.where(norm <= limit, weight.grad, 0))\n"
        "optimizer.step()":
            "before = [weight.detach().clone() for weight in model.parameters()]\n"
            "optimizer.step()\n"
            "with torch.no_grad():\n"
            "    for weight, old in zip(model.parameters(), before, strict=True):\n"
            "        weight.copy_(torch.where(norm <= limit, weight, old))",
    },
)


def generate__has_a_frozen_position(model, first_token, eos_token, max_new_tokens):
    token = first_token.clone()
    tokens = []

    def step(position):
        return model(token, position).argmax(-1)

    warm_up(partial(step, 0))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        next_token = step(0)
    for _ in range(max_new_tokens):
        graph.replay()
        token.copy_(next_token)
        tokens.append(next_token.clone())
    text = torch.cat(tokens).tolist()
    return text[: text.index(eos_token) + 1] if eos_token in text else text


changed(
    generate,
    right_with_two_tokens_in_a_graph={
        "graph = torch.cuda.CUDAGraph()\n"
        "with torch.cuda.graph(graph):\n"
        "    step()":
            "graphs = {}\n"
            "for count in (1, 2):\n"
            "    graphs[count] = torch.cuda.CUDAGraph()\n"
            "    with torch.cuda.graph(graphs[count]):\n"
            "        for _ in range(count):\n"
            "            step()",
        "for _ in range(min(read_every, max_new_tokens - written)):\n"
        "    graph.replay()\n"
        "    written += 1":
            "count = min(2, max_new_tokens - written)\n"
            "graphs[count].replay()\n"
            "written += count",
    },
)


changed(
    generate__as_given,
    waits_for_each_token={
        "def step(position):": "position = torch.zeros_like(first_token)\ndef step():",
        "warm_up(partial(step, 0))": "warm_up(step)",
        "next_token = step(0)": "next_token = step()",
        "graph.replay()": "position.fill_(len(text))\n…",
    },
)


def serve__answers_each_row(model, requests):
    x = torch.zeros(64, 8, device="cuda")
    count = torch.tensor(64, device="cuda")
    with torch.no_grad():
        warm_up(partial(model, x, count))
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            answer = model(x, count)
    answers = []
    for request in requests:
        x[: len(request)].copy_(request)
        count.fill_(len(request))
        graph.replay()
        answers.append(answer.repeat(len(request), 1))
    return answers


changed(
    serve,
    divides_by_the_bucket={"count.fill_(len(request))": ""},
    right_with_one_graph_for_all={"length = 32 if len(request) <= 32 else 64": "length = 64"},
)


changed(
    serve__as_given,
    forgets_the_oldest_graph={
        "graphs[length] = (graph, x, count, answer)":
            "…\n"
            "if len(graphs) > 4:\n"
            "    graphs.pop(next(iter(graphs)))",
    },
)


changed(
    train_scheduled,
    binds_a_new_rate={
        "scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.5)": "",
        "scheduler.step()":
            "if len(losses) % 2 == 0:\n"
            "    optimizer.param_groups[0]['lr'] = optimizer.param_groups[0]['lr'] / 2",
    },
    puts_the_scheduler_in_the_graph={
        "return loss.detach()": "scheduler.step()\n…",
        "scheduler.step()": "",
    },
)
