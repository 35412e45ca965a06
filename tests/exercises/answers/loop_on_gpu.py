"""Answers to the exercises of *Loop on the GPU*: wrong ones, and other right ones (`__right_`)."""

from functools import partial


def generating(
    step,
    sample,
    end,
    limit,
    *,
    clone=torch.clone,
    reset=True,
    early=False,
    any_row=torch.any,
    masked=True,
    limited=True,
    sets="last",
):
    """A graph that generates, with a fault if one is asked for, and the function that replays it."""
    tokens = sample.clone()
    completions = torch.full((len(tokens), limit), -1, device="cuda")
    columns = torch.arange(limit, device="cuda")
    count = torch.zeros((), dtype=torch.long, device="cuda")
    alive = torch.ones_like(tokens, dtype=torch.bool)
    going = torch.ones((), dtype=torch.bool, device="cuda")

    def begin():
        completions.fill_(-1)
        count.zero_()
        alive.fill_(True)
        going.fill_(True)

    def turn():
        tokens.copy_(step(tokens))
        if early:
            alive.logical_and_(tokens != end)
        here = columns == count
        here = alive[:, None] & here if masked else here.expand_as(completions)
        completions.copy_(torch.where(here, tokens[:, None], completions))
        count.add_(1)
        alive.logical_and_(tokens != end)
        if limited:
            alive.logical_and_(count < limit)
        going.copy_(any_row(alive))

    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        if reset:
            begin()
        graph.begin_capture_to_while_node(going)
        if sets == "first":
            graph.set_conditional_handle_for_current_node(going)
        turn()
        if sets == "last":
            graph.set_conditional_handle_for_current_node(going)
        graph.end_capture_to_conditional_node()

    def generate(new_tokens):
        tokens.copy_(new_tokens)
        graph.replay()
        return clone(completions)

    generate.state = columns, count, alive, going
    return generate


def capture_generate__state_is_gone(step, tokens, end, limit):
    generate = generating(step, tokens, end, limit)
    del generate.state
    return generate


def capture_generate__rows_go_on(step, tokens, end, limit):
    return generating(step, tokens, end, limit, masked=False)


def capture_generate__end_token_missing(step, tokens, end, limit):
    return generating(step, tokens, end, limit, early=True)


def capture_generate__first_end_stops_all(step, tokens, end, limit):
    return generating(step, tokens, end, limit, any_row=torch.all)


def capture_generate__no_limit(step, tokens, end, limit):
    return generating(step, tokens, end, limit, limited=False)


def capture_generate__condition_set_first(step, tokens, end, limit):
    return generating(step, tokens, end, limit, sets="first")


def capture_generate__never_reset(step, tokens, end, limit):
    return generating(step, tokens, end, limit, reset=False)


def capture_generate__not_cloned(step, tokens, end, limit):
    return generating(step, tokens, end, limit, clone=lambda completions: completions)


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


def capture_generate__callers_tokens(step, tokens, end, limit):
    tokens.clone = lambda: tokens
    return generating(step, tokens, end, limit)


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


def sampling(
    logits_of,
    sample,
    temperature,
    end,
    limit,
    *,
    draw=lambda noise: noise.exponential_(),
    row=lambda noise, count: noise[count],
    clone=torch.clone,
    reset=True,
    in_place=True,
    more=0,
):
    """A graph that samples, with a fault if one is asked for, and the function that replays it."""
    token = sample.clone()
    noise = torch.ones(limit, logits_of(token).shape[-1], device="cuda")
    completion = torch.full((limit,), -1, device="cuda")
    count = torch.zeros(1, dtype=torch.long, device="cuda")
    going = torch.ones((), dtype=torch.bool, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        if reset:
            completion.fill_(-1)
            count.zero_()
            going.fill_(True)
        graph.begin_capture_to_while_node(going)
        last = logits_of(token) / temperature - row(noise, count).log()
        token.copy_(last.argmax(dim=-1))
        completion[count] = token
        if in_place:
            count.add_(1)
            going.copy_(((count < limit + more) & (token != end))[0])
        else:
            going = ((count + 1 < limit) & (token != end))[0]
        graph.set_conditional_handle_for_current_node(going)
        graph.end_capture_to_conditional_node()

    def generate(new_token):
        token.copy_(new_token)
        draw(noise)
        graph.replay()
        return clone(completion)

    generate.state = count, going
    return generate


def capture_sampler__drawn_in_the_body(logits_of, token, temperature, end, limit):
    def row(noise, count):
        return torch.empty_like(noise[count]).exponential_()

    return sampling(logits_of, token, temperature, end, limit, row=row)


def capture_sampler__drawn_into_a_new_tensor(logits_of, token, temperature, end, limit):
    def draw(noise):
        noise = torch.empty_like(noise).exponential_()

    return sampling(logits_of, token, temperature, end, limit, draw=draw)


def capture_sampler__first_row(logits_of, token, temperature, end, limit):
    return sampling(logits_of, token, temperature, end, limit, row=lambda noise, _: noise[:1])


def capture_sampler__temperature_of_one(logits_of, token, temperature, end, limit):
    return sampling(logits_of, token, 1.0, end, limit)


def capture_sampler__never_reset(logits_of, token, temperature, end, limit):
    return sampling(logits_of, token, temperature, end, limit, reset=False)


def capture_sampler__not_cloned(logits_of, token, temperature, end, limit):
    return sampling(logits_of, token, temperature, end, limit, clone=lambda tokens: tokens)


def capture_sampler__count_not_written(logits_of, token, temperature, end, limit):
    return sampling(logits_of, token, temperature, end, limit, in_place=False)


def capture_sampler__D12_one_iteration_too_many(logits_of, token, temperature, end, limit):
    return sampling(logits_of, token, temperature, end, limit, more=1)


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


def captured_step(parameters, lr, warm_up=lambda optimizer: None, allowed=None, momentum=0.9):
    """A step in an if node, with a fault if one is asked for."""
    optimizer = torch.optim.SGD(parameters, lr=lr, momentum=momentum)
    warm_up(optimizer)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        finite = torch.stack([p.grad.isfinite().all() for p in parameters]).all()
        graph.begin_capture_to_if_node(allowed(parameters) if allowed else finite)
        optimizer.step()
        graph.end_capture_to_conditional_node()
    return partial(lambda graph, _: graph.replay(), graph, optimizer)


def guarded_step__optimizer_gone(parameters, lr):
    def warm_up(optimizer):
        with unchanged(*parameters, optimizer):
            optimizer.step()

    return captured_step(parameters, lr, warm_up).args[0].replay


def guarded_step__warm_up_stays(parameters, lr):
    return captured_step(parameters, lr, lambda optimizer: optimizer.step())


def guarded_step__momentum_stays(parameters, lr):
    def warm_up(optimizer):
        with unchanged(*parameters):
            optimizer.step()

    return captured_step(parameters, lr, warm_up)


def guarded_step__any_is_enough(parameters, lr):
    def warm_up(optimizer):
        with unchanged(*parameters, optimizer):
            optimizer.step()

    def allowed(parameters):
        return torch.stack([p.grad.isfinite().any() for p in parameters]).any()

    return captured_step(parameters, lr, warm_up, allowed)


def guarded_step__without_a_node(parameters, lr):
    buffers = [torch.zeros_like(p) for p in parameters]
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(graph):
        finite = torch.stack([p.grad.isfinite().all() for p in parameters]).all()
        for p, buffer in zip(parameters, buffers, strict=True):
            buffer.copy_(torch.where(finite, 0.9 * buffer + p.grad, buffer))
            p.sub_(torch.where(finite, lr * buffer, 0))
    return partial(lambda graph, _: graph.replay(), graph, buffers)


def guarded_step__node_not_ended(parameters, lr):
    optimizer = torch.optim.SGD(parameters, lr=lr, momentum=0.9)
    with unchanged(*parameters, optimizer):
        optimizer.step()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        finite = torch.stack([p.grad.isfinite().all() for p in parameters]).all()
        graph.begin_capture_to_if_node(finite)
        optimizer.step()
    return partial(lambda graph, _: graph.replay(), graph, optimizer)


def guarded_step__new_weights(parameters, lr):
    saved = [p.detach().clone() for p in parameters]
    replay = captured_step(parameters, lr, lambda optimizer: optimizer.step())
    for p, values in zip(parameters, saved, strict=True):
        p.data = values
    return replay


def guarded_step__right_by_hand(parameters, lr):
    def warm_up(optimizer):
        saved = [p.detach().clone() for p in parameters]
        optimizer.step()
        with torch.no_grad():
            for p, values in zip(parameters, saved, strict=True):
                p.copy_(values)
                optimizer.state[p]["momentum_buffer"].zero_()

    return captured_step(parameters, lr, warm_up)
