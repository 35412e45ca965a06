"""Answers to the exercises of *Decode a language model*: wrong ones, and other right ones (`__right_`)."""


def responder(
    model, config, reads=True, places=True, clones=True, beside=0, warmup=3, anew=False, eager=False
):
    """make_responder with faults: what goes wrong is False, or beside the position."""
    kv_cache = new_kv_cache(config, 1, "cuda", torch.float32)
    tokens = torch.zeros(1, 1, dtype=torch.int64, device="cuda")
    input_pos = torch.zeros_like(tokens)

    def step():
        tokens.copy_(sample(model(tokens, input_pos, kv_cache)))
        input_pos.add_(1)

    replay = step if eager else capture_step(step, warmup=warmup)

    def respond(prompt, count):
        own = kv_cache if reads else new_kv_cache(config, 1, "cuda", torch.float32)
        positions = torch.arange(prompt.shape[1], device="cuda")[None]
        tokens.copy_(sample(model(prompt, positions, own)))
        if places:
            input_pos.fill_(prompt.shape[1] + beside)
        made = [tokens.clone() if clones else tokens]
        again = capture_step(step, warmup=0) if anew else replay
        for _ in range(count - 1):
            again()
            made.append(tokens.clone() if clones else tokens)
        return torch.cat(made, dim=1)

    return respond


def make_responder__only_cloned(model, config):
    return responder(model, config, reads=False, places=False)


def make_responder__new_cache(model, config):
    return responder(model, config, reads=False)


def make_responder__position_goes_on(model, config):
    return responder(model, config, places=False)


def make_responder__one_before(model, config):
    return responder(model, config, beside=-1)


def make_responder__captured_for_each_prompt(model, config):
    return responder(model, config, anew=True)


def make_responder__eager(model, config):
    return responder(model, config, eager=True)


def make_responder__right_one_warm_up(model, config):
    return responder(model, config, warmup=1)


def make_responder__right_cache_zeroed(model, config):
    kv_cache = new_kv_cache(config, 1, "cuda", torch.float32)
    tokens = torch.zeros(1, 1, dtype=torch.int64, device="cuda")
    input_pos = torch.zeros_like(tokens)

    def step():
        tokens.copy_(sample(model(tokens, input_pos, kv_cache)))
        input_pos.add_(1)
        return tokens

    with unchanged(tokens, input_pos, kv_cache):
        replay = capture_step(step)

    def respond(prompt, count):
        kv_cache.zero_()
        length = prompt.shape[1]
        tokens.copy_(sample(model(prompt, torch.arange(length, device="cuda")[None], kv_cache)))
        input_pos.copy_(torch.full_like(input_pos, length))
        answer = torch.empty(1, count, dtype=torch.int64, device="cuda")
        answer[:, :1] = tokens
        for number in range(1, count):
            answer[:, number : number + 1] = replay()
        return answer

    return respond


def capture_decode(step, tokens, input_pos, generator):
    with unchanged(tokens, input_pos, generators=[generator]):
        replay = capture_step(step, generators=[generator])
    return lambda: (replay(), tokens.clone())[1]


def graph_decode__position_a_number(model, tokens, input_pos, kv_cache, temperature, generator):
    place = int(input_pos[0])

    def step():
        nonlocal place
        places = torch.full_like(input_pos, place)
        tokens.copy_(sample(model(tokens, places, kv_cache), temperature, generator))
        place += 1

    return capture_decode(step, tokens, input_pos, generator)


def graph_decode__cache_rebound(model, tokens, input_pos, kv_cache, temperature, generator):
    def step():
        own = kv_cache.clone()
        tokens.copy_(sample(model(tokens, input_pos, own), temperature, generator))
        input_pos.add_(1)

    return capture_decode(step, tokens, input_pos, generator)


def graph_decode__token_not_fed_back(model, tokens, input_pos, kv_cache, temperature, generator):
    given = torch.empty_like(tokens)

    def step():
        given.copy_(sample(model(tokens, input_pos, kv_cache), temperature, generator))
        input_pos.add_(1)

    replay = capture_decode(step, tokens, input_pos, generator)
    return lambda: (replay(), given.clone())[1]


def graph_decode__name_rebound(model, tokens, input_pos, kv_cache, temperature, generator):
    def step():
        nonlocal tokens, input_pos
        tokens = sample(model(tokens, input_pos, kv_cache), temperature, generator)
        input_pos = input_pos + 1
        return tokens

    replay = capture_step(step, warmup=0, generators=[generator])
    return lambda: replay().clone()


def graph_decode__D14_tokens_rebound(model, tokens, input_pos, kv_cache, temperature, generator):
    def step():
        nonlocal tokens
        tokens = sample(model(tokens, input_pos, kv_cache), temperature, generator)
        input_pos.add_(1)
        return tokens

    with unchanged(input_pos, generators=[generator]):
        replay = capture_step(step, generators=[generator])
    return lambda: replay().clone()


def graph_decode__warmup_decoded(model, tokens, input_pos, kv_cache, temperature, generator):
    def step():
        tokens.copy_(sample(model(tokens, input_pos, kv_cache), temperature, generator))
        input_pos.add_(1)

    replay = capture_step(step, generators=[generator])
    return lambda: (replay(), tokens.clone())[1]


def graph_decode__warmup_drew(model, tokens, input_pos, kv_cache, temperature, generator):
    def step():
        tokens.copy_(sample(model(tokens, input_pos, kv_cache), temperature, generator))
        input_pos.add_(1)

    with unchanged(tokens, input_pos):
        replay = capture_step(step, generators=[generator])
    return lambda: (replay(), tokens.clone())[1]


def graph_decode__not_cloned(model, tokens, input_pos, kv_cache, temperature, generator):
    def step():
        tokens.copy_(sample(model(tokens, input_pos, kv_cache), temperature, generator))
        input_pos.add_(1)
        return tokens

    with unchanged(tokens, input_pos, generators=[generator]):
        return capture_step(step, generators=[generator])


def graph_decode__sampled_outside(model, tokens, input_pos, kv_cache, temperature, generator):
    replay = capture_step(lambda: model(tokens, input_pos, kv_cache))

    def following():
        tokens.copy_(sample(replay(), temperature, generator))
        input_pos.add_(1)
        return tokens.clone()

    return following


def graph_decode__eager(model, tokens, input_pos, kv_cache, temperature, generator):
    def following():
        tokens.copy_(sample(model(tokens, input_pos, kv_cache), temperature, generator))
        input_pos.add_(1)
        return tokens.clone()

    return following


def graph_decode__read_in_each_call(model, tokens, input_pos, kv_cache, temperature, generator):
    replay = graph_decode(model, tokens, input_pos, kv_cache, temperature, generator)

    def following():
        made = replay()
        made.tolist()
        return made

    return following


def graph_decode__most_likely(model, tokens, input_pos, kv_cache, temperature, generator):
    def step():
        tokens.copy_(sample(model(tokens, input_pos, kv_cache)))
        input_pos.add_(1)

    return capture_decode(step, tokens, input_pos, generator)


def graph_decode__token_before_the_step(model, tokens, input_pos, kv_cache, temperature, generator):
    replay = graph_decode(model, tokens, input_pos, kv_cache, temperature, generator)

    def following():
        token = tokens.clone()
        replay()
        return token

    return following


@torch.inference_mode()
def graph_decode__right_inference_mode(model, tokens, input_pos, kv_cache, temperature, generator):
    return graph_decode(model, tokens, input_pos, kv_cache, temperature, generator)


def graph_decode__right_own_tensors(model, tokens, input_pos, kv_cache, temperature, generator):
    static_tokens, static_pos = tokens.clone(), input_pos.clone()
    return graph_decode(model, static_tokens, static_pos, kv_cache, temperature, generator)


def graph_decode__right_by_hand(model, tokens, input_pos, kv_cache, temperature, generator):
    model(tokens, input_pos, kv_cache)
    graph = torch.cuda.CUDAGraph()
    graph.register_generator_state(generator)
    with torch.cuda.graph(graph):
        tokens.copy_(sample(model(tokens, input_pos, kv_cache), temperature, generator))
        input_pos.add_(1)

    def following():
        graph.replay()
        return tokens.clone()

    return following


changed(
    graph_decode__warmup_drew,
    position_not_restored={"(tokens, input_pos):": "(tokens, generators=[generator]):"},
)


def rows_of(model, config, prompts, positions=None, clones=True, restores=True, eager=False):
    """graph_rows with faults. positions: from the lengths of the prompts."""
    kv_cache = new_kv_cache(config, len(prompts), "cuda", torch.float32)
    first = []
    for row, prompt in enumerate(prompts):
        places = torch.arange(prompt.shape[1], device="cuda")[None]
        first.append(sample(model(prompt, places, kv_cache[:, :, row : row + 1])))
    tokens = torch.cat(first)
    lengths = [prompt.shape[1] for prompt in prompts]
    lengths = positions(lengths) if positions else lengths
    input_pos = torch.tensor(lengths, device="cuda")[:, None]

    def step():
        tokens.copy_(sample(model(tokens, input_pos, kv_cache)))
        input_pos.add_(1)

    replay = step
    if not eager:
        with unchanged(*[tokens, input_pos] * restores):
            replay = capture_step(step)

    def following():
        replay()
        return tokens.clone()

    return tokens.clone() if clones else tokens, following


def graph_rows__longest_position(model, config, prompts):
    return rows_of(model, config, prompts, lambda lengths: [max(lengths)] * len(lengths))


def graph_rows__shortest_position(model, config, prompts):
    return rows_of(model, config, prompts, lambda lengths: [min(lengths)] * len(lengths))


def graph_rows__first_not_cloned(model, config, prompts):
    return rows_of(model, config, prompts, clones=False)


def graph_rows__warm_up_decoded(model, config, prompts):
    return rows_of(model, config, prompts, restores=False)


def graph_rows__eager(model, config, prompts):
    return rows_of(model, config, prompts, eager=True)


def graph_rows__only_the_function(model, config, prompts):
    return rows_of(model, config, prompts)[1]


def graph_rows__a_graph_for_each_row(model, config, prompts):
    pairs = [rows_of(model, config, [prompt]) for prompt in prompts]
    first = torch.cat([tokens for tokens, _ in pairs])
    return first, lambda: torch.cat([following() for _, following in pairs])


def graph_rows__padded(model, config, prompts):
    longest = max(prompt.shape[1] for prompt in prompts)
    padded = [torch.nn.functional.pad(prompt, (0, longest - prompt.shape[1])) for prompt in prompts]
    return rows_of(model, config, padded)


changed(
    graph_rows,
    right_most_of_the_prompt_first={
        "first = []": "",
        "first.append(sample(model(prompt, positions, kv_cache[:, :, row:row + 1])))":
            "model(prompt, positions, kv_cache[:, :, row:row + 1])",
        "(first)": "([prompt[:, -1:] for prompt in prompts])",
        "[prompt.shape[1]] for prompt in": "[prompt.shape[1] - 1] for prompt in",
        "return (tokens.clone(), following)": "return (following(), following)",
    },
)


def tokens_graph(model, tokens, input_pos, kv_cache, count, clean=True, clone=torch.clone):
    def steps():
        made = []
        for _ in range(count):
            tokens.copy_(sample(model(tokens, input_pos, kv_cache)))
            input_pos.add_(1)
            made.append(clone(tokens))
        return torch.cat(made, dim=1)

    with unchanged(*[tokens, input_pos] * clean):
        return capture_step(steps, warmup=1)


def until(replay, end, limit):
    made = []
    while len(made) < limit and end not in made:
        made += replay()[0].tolist()
    made = made[:limit]
    return made[: made.index(end) + 1] if end in made else made


def generate__one_token_a_graph(model, tokens, input_pos, kv_cache, end, every, limit):
    return until(tokens_graph(model, tokens, input_pos, kv_cache, 1), end, limit)


def generate__not_cloned(model, tokens, input_pos, kv_cache, end, every, limit):
    replay = tokens_graph(model, tokens, input_pos, kv_cache, every, clone=lambda tensor: tensor)
    return until(replay, end, limit)


def generate__without_the_end(model, tokens, input_pos, kv_cache, end, every, limit):
    made = until(tokens_graph(model, tokens, input_pos, kv_cache, every), end, limit)
    return made[: made.index(end)] if end in made else made


def generate__warmup_decoded(model, tokens, input_pos, kv_cache, end, every, limit):
    return until(tokens_graph(model, tokens, input_pos, kv_cache, every, clean=False), end, limit)


def with_warmup(model, tokens, input_pos, kv_cache, end, every, limit, warmup):
    """generate, captured after so many warm-up runs."""

    def steps():
        made = []
        for _ in range(every):
            tokens.copy_(sample(model(tokens, input_pos, kv_cache)))
            input_pos.add_(1)
            made.append(tokens.clone())
        return torch.cat(made, dim=1)

    with unchanged(tokens, input_pos):
        replay = capture_step(steps, warmup=warmup)
    return until(replay, end, limit)


def generate__D5_three_warm_ups(model, tokens, input_pos, kv_cache, end, every, limit):
    return with_warmup(model, tokens, input_pos, kv_cache, end, every, limit, 3)


def generate__read_inside(model, tokens, input_pos, kv_cache, end, every, limit):
    def steps():
        made = []
        for _ in range(every):
            tokens.copy_(sample(model(tokens, input_pos, kv_cache)))
            input_pos.add_(1)
            made.append(tokens.item())
        return made

    return capture_step(steps)()


def generate__eager(model, tokens, input_pos, kv_cache, end, every, limit):
    made = []
    while len(made) < limit and end not in made:
        tokens = sample(model(tokens, input_pos, kv_cache))
        input_pos = input_pos + 1
        made.append(tokens.item())
    return made


def generate__end_behind_the_limit(model, tokens, input_pos, kv_cache, end, every, limit):
    replay, made = tokens_graph(model, tokens, input_pos, kv_cache, every), []
    while len(made) < limit and end not in made:
        made += replay()[0].tolist()
    return made[: made.index(end) + 1] if end in made else made[:limit]


def generate__token_before_the_step(model, tokens, input_pos, kv_cache, end, every, limit):
    first = tokens.item()
    return [first, *generate(model, tokens, input_pos, kv_cache, end, every, limit)][:limit]


def generate__right_token_by_token(model, tokens, input_pos, kv_cache, end, every, limit):
    replay = tokens_graph(model, tokens, input_pos, kv_cache, every)
    made = []
    while True:
        for token in replay().flatten().tolist():
            made.append(token)
            if token == end or len(made) == limit:
                return made


def generate__right_a_buffer(model, tokens, input_pos, kv_cache, end, every, limit):
    buffer = torch.zeros(every, dtype=torch.int64, device="cuda")

    def steps():
        for place in range(every):
            tokens.copy_(sample(model(tokens, input_pos, kv_cache)))
            buffer[place] = tokens[0, 0]
            input_pos.add_(1)

    with unchanged(tokens, input_pos):
        replay, made = capture_step(steps, warmup=1), []
    while len(made) < limit and end not in made:
        replay()
        made += buffer.tolist()
    made = made[:limit]
    return made[: made.index(end) + 1] if end in made else made
