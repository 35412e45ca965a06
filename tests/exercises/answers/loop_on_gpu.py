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
    callers_tokens={"tokens = tokens.clone()": ""},
    floats={"-1, device='cuda'": "-1.0, device='cuda'"},
    right_by_arithmetic={
        "copy_(torch.where(here, tokens[:, None], completions))":
            "mul_(~here).add_(here * tokens[:, None])",
    },
)


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
    count_not_written={
        "count.add_(1)": "",
        "(count < limit) & (token != end)": "(count + 1 < limit) & (token != end)",
    },
    right_row_selected={"noise[count]": "noise.index_select(0, count)"},
    floats={
        "-1, device='cuda'": "-1.0, device='cuda'",
        "completion[count] = token": "completion[count] = token.float()",
    },
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
