"""Answers to the exercises of *Loop on the GPU*: wrong ones, and other right ones (`__right_`)."""

from functools import partial


def capture_generate__unrolled(step, tokens, end, limit):
    tokens = tokens.clone()
    completions = torch.full((len(tokens), limit), -1, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        completions.fill_(-1)
        alive = torch.ones_like(tokens, dtype=torch.bool)
        for column in range(limit):
            tokens.copy_(step(tokens))
            completions[:, column] = torch.where(alive, tokens, -1)
            alive = alive & (tokens != end)

    def generate(new_tokens):
        tokens.copy_(new_tokens)
        graph.replay()
        return completions.clone()

    return generate


def capture_generate__eager(step, tokens, end, limit):
    def generate(tokens):
        completions = torch.full((len(tokens), limit), -1, device="cuda")
        alive = torch.ones_like(tokens, dtype=torch.bool)
        for column in range(limit):
            tokens = step(tokens)
            completions[:, column] = torch.where(alive, tokens, -1)
            alive = alive & (tokens != end)
        return completions

    return generate


def capture_generate__right_by_index(step, tokens, end, limit):
    tokens = tokens.clone()
    rows = torch.arange(len(tokens), device="cuda")
    completions = torch.full((len(tokens), limit + 1), -1, device="cuda")  # the last one is waste
    lengths = torch.zeros_like(tokens)
    alive = torch.ones_like(tokens, dtype=torch.bool)
    count = torch.zeros((), dtype=torch.long, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for state, value in ((completions, -1), (lengths, 0), (alive, True), (count, 0)):
            state.fill_(value)
        graph.begin_capture_to_while_node(alive.any())
        tokens.copy_(step(tokens))
        completions.index_put_((rows, torch.where(alive, lengths, limit)), tokens)
        lengths.add_(alive)
        count.add_(1)
        alive.logical_and_(tokens != end)
        graph.set_conditional_handle_for_current_node(alive.any() & (count < limit))
        graph.end_capture_to_conditional_node()

    def generate(new_tokens):
        tokens.copy_(new_tokens)
        graph.replay()
        return completions[:, :limit].clone()

    generate.state = rows, lengths, alive, count
    return generate


changed(
    capture_generate,
    never_reset={
        "with torch.cuda.graph(graph):\n"
        "    completions = torch.full((len(tokens), limit), -1, device='cuda')\n"
        "    columns = torch.arange(limit, device='cuda')\n"
        "    count = torch.zeros((), dtype=torch.long, device='cuda')\n"
        "    alive = torch.ones_like(tokens, dtype=torch.bool)":
            "completions = torch.full((len(tokens), limit), -1, device='cuda')\n"
            "columns = torch.arange(limit, device='cuda')\n"
            "count = torch.zeros((), dtype=torch.long, device='cuda')\n"
            "alive = torch.ones_like(tokens, dtype=torch.bool)\n"
            "with torch.cuda.graph(graph):",
        "return generate": "generate.state = columns, count, alive\n…",
    },
    state_is_gone={
        "tokens = tokens.clone()": "…\ncolumns = torch.arange(limit, device='cuda')",
        "columns = torch.arange(limit, device='cuda')": "",
    },
    rows_go_on={
        "torch.where(alive, step(tokens), tokens)": "step(tokens)",
        "alive[:, None] & (columns == count)": "(columns == count).expand_as(completions)",
    },
    end_token_missing={"alive[:, None] &": "(alive & (tokens != end))[:, None] &"},
    first_end_stops_all={"for_current_node(alive.any())": "for_current_node(alive.all())"},
    no_limit={".logical_and_(count < limit)": ""},
    condition_set_first={
        "graph.begin_capture_to_while_node(alive.any())":
            "…\ngraph.set_conditional_handle_for_current_node(alive.any())",
        "graph.set_conditional_handle_for_current_node(alive.any())": "",
    },
    not_cloned={"completions.clone()": "completions"},
    callers_tokens={"tokens = tokens.clone()": ""},
    floats={"-1, device='cuda'": "-1.0, device='cuda'"},
)


def capture_sampler__right_with_log_noise(logits_of, token, temperature, end, limit):
    token = token.clone()
    gumbel = torch.zeros(limit, logits_of(token).shape[-1], device="cuda")
    tokens = torch.full((limit,), -1, device="cuda")
    places = torch.arange(limit, device="cuda")
    count = torch.zeros((), dtype=torch.long, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        tokens.fill_(-1)
        count.zero_()
        graph.begin_capture_to_while_node(count < limit)
        scores = logits_of(token).div(temperature).add(gumbel.index_select(0, count.view(1)))
        token.copy_(scores.argmax(dim=-1))
        tokens.copy_(torch.where(places == count, token, tokens))
        count.add_(1)
        going = (count < limit).logical_and(token[0] != end)
        graph.set_conditional_handle_for_current_node(going)
        graph.end_capture_to_conditional_node()

    def generate(new_token):
        token.copy_(new_token)
        gumbel.exponential_().log_().neg_()
        graph.replay()
        return tokens.clone()

    generate.state = places, count
    return generate


changed(
    capture_sampler,
    never_reset={
        "with torch.cuda.graph(graph):\n"
        "    completion = torch.full((limit,), -1, device='cuda')\n"
        "    count = torch.zeros(1, dtype=torch.long, device='cuda')":
            "completion = torch.full((limit,), -1, device='cuda')\n"
            "count = torch.zeros(1, dtype=torch.long, device='cuda')\n"
            "with torch.cuda.graph(graph):",
        "return generate": "generate.count = count\n…",
    },
    drawn_in_the_body={"noise[count].log()": "torch.empty_like(noise[count]).exponential_().log()"},
    drawn_into_a_new_tensor={"noise.exponential_()": "torch.empty_like(noise).exponential_()"},
    first_row={"noise[count].log()": "noise[:1].log()"},
    one_iteration_too_many={
        "(count < limit) & (token != end)": "(count < limit + 1) & (token != end)",
    },
    temperature_of_one={"logits_of(token) / temperature": "logits_of(token)"},
    not_cloned={"completion.clone()": "completion"},
    count_not_written={
        "count.add_(1)": "",
        "(count < limit) & (token != end)": "(count + 1 < limit) & (token != end)",
    },
)


changed(
    capture_sampler__right_with_log_noise,
    floats={"-1, device='cuda'": "-1.0, device='cuda'"},
)


def guarded_step__without_a_node(parameters, lr):
    buffers = [torch.zeros_like(p) for p in parameters]
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(graph):
        finite = torch.stack([p.grad.isfinite().all() for p in parameters]).all()
        for p, buffer in zip(parameters, buffers, strict=True):
            buffer.copy_(torch.where(finite, 0.9 * buffer + p.grad, buffer))
            p.sub_(torch.where(finite, lr * buffer, 0))
    return partial(lambda graph, _: graph.replay(), graph, buffers)


changed(
    guarded_step,
    any_is_enough={
        "p.grad.isfinite().all() for p in parameters]).all()":
            "p.grad.isfinite().any() for p in parameters]).any()",
    },
    optimizer_gone={"step.optimizer = optimizer": ""},
    warm_up_stays={
        "with unchanged(*parameters, optimizer):\n    optimizer.step()": "optimizer.step()",
    },
    momentum_stays={"unchanged(*parameters, optimizer)": "unchanged(*parameters)"},
    node_not_ended={"graph.end_capture_to_conditional_node()": ""},
    new_weights={
        "with unchanged(*parameters, optimizer):\n    optimizer.step()":
            "saved = [p.detach().clone() for p in parameters]\noptimizer.step()",
        "def step():":
            "for p, values in zip(parameters, saved, strict=True):\n"
            "    p.data = values\n"
            "…",
    },
    right_by_hand={
        "with unchanged(*parameters, optimizer):\n    optimizer.step()":
            "saved = [p.detach().clone() for p in parameters]\n"
            "optimizer.step()\n"
            "with torch.no_grad():\n"
            "    for p, values in zip(parameters, saved, strict=True):\n"
            "        p.copy_(values)\n"
            "        optimizer.state[p]['momentum_buffer'].zero_()",
    },
)
