"""Answers to the exercises of *Decode a language model*: wrong ones, and other right ones (`__right_`)."""


def numbers(config):
    heads = config.n_heads + 2 * config.n_kv_heads
    block = config.dim * (heads * config.head_dim + config.dim + 3 * config.hidden_dim)
    cache = 2 * config.n_layers * config.n_kv_heads * config.max_seq_len * config.head_dim
    return config.n_layers * block, config.vocab_size * config.dim, cache


def floor_of__weights_once_a_row(config, rows, bytes_per_us, step_us):
    floor_us = 2 * rows * sum(numbers(config)) / bytes_per_us
    return floor_us, floor_us / step_us


def floor_of__numbers_not_bytes(config, rows, bytes_per_us, step_us):
    blocks, embedding, cache = numbers(config)
    floor_us = (blocks + embedding + rows * cache) / bytes_per_us
    return floor_us, floor_us / step_us


def floor_of__no_cache(config, rows, bytes_per_us, step_us):
    floor_us = 2 * sum(numbers(config)[:2]) / bytes_per_us
    return floor_us, floor_us / step_us


def floor_of__head_and_embedding(config, rows, bytes_per_us, step_us):
    blocks, embedding, cache = numbers(config)
    floor_us = 2 * (blocks + 2 * embedding + rows * cache) / bytes_per_us
    return floor_us, floor_us / step_us


def floor_of__keys_of_every_head(config, rows, bytes_per_us, step_us):
    blocks, embedding, cache = numbers(config)
    cache *= config.n_heads // config.n_kv_heads
    floor_us = 2 * (blocks + embedding + rows * cache) / bytes_per_us
    return floor_us, floor_us / step_us


def floor_of__share_upside_down(config, rows, bytes_per_us, step_us):
    floor_us, _ = floor_of(config, rows, bytes_per_us, step_us)
    return floor_us, step_us / floor_us


def floor_of__no_share(config, rows, bytes_per_us, step_us):
    return floor_of(config, rows, bytes_per_us, step_us)[0]


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


def graph_decode__position_outside(model, tokens, input_pos, kv_cache, temperature, generator):
    def step():
        tokens.copy_(sample(model(tokens, input_pos, kv_cache), temperature, generator))

    with unchanged(tokens, generators=[generator]):
        replay = capture_step(step, generators=[generator])

    def following():
        replay()
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


def graph_decode__position_not_restored(model, tokens, input_pos, kv_cache, temperature, generator):
    def step():
        tokens.copy_(sample(model(tokens, input_pos, kv_cache), temperature, generator))
        input_pos.add_(1)

    with unchanged(tokens, generators=[generator]):
        replay = capture_step(step, generators=[generator])
    return lambda: (replay(), tokens.clone())[1]


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


def graph_decode__cloned_in_the_graph(model, tokens, input_pos, kv_cache, temperature, generator):
    def step():
        tokens.copy_(sample(model(tokens, input_pos, kv_cache), temperature, generator))
        input_pos.add_(1)
        return tokens.clone()

    with unchanged(tokens, input_pos, generators=[generator]):
        return capture_step(step, generators=[generator])


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


def generate__beyond_the_end(model, tokens, input_pos, kv_cache, end, every, limit):
    replay, made = tokens_graph(model, tokens, input_pos, kv_cache, every), []
    while len(made) < limit and end not in made:
        made += replay()[0].tolist()
    return made


def generate__without_the_end(model, tokens, input_pos, kv_cache, end, every, limit):
    made = until(tokens_graph(model, tokens, input_pos, kv_cache, every), end, limit)
    return made[: made.index(end)] if end in made else made


def generate__to_the_limit(model, tokens, input_pos, kv_cache, end, every, limit):
    replay, made = tokens_graph(model, tokens, input_pos, kv_cache, every), []
    while len(made) < limit:
        made += replay()[0].tolist()
    made = made[:limit]
    return made[: made.index(end) + 1] if end in made else made


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


def generate__D5_ten_warm_ups(model, tokens, input_pos, kv_cache, end, every, limit):
    return with_warmup(model, tokens, input_pos, kv_cache, end, every, limit, 10)


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


def generate__no_limit(model, tokens, input_pos, kv_cache, end, every, limit):
    replay, made = tokens_graph(model, tokens, input_pos, kv_cache, every), []
    while len(made) < limit and end not in made:
        made += replay()[0].tolist()
    return made[: made.index(end) + 1] if end in made else made


def generate__whole_replays(model, tokens, input_pos, kv_cache, end, every, limit):
    replay, made = tokens_graph(model, tokens, input_pos, kv_cache, every), []
    for _ in range(limit // every):
        made += replay()[0].tolist()
        if end in made:
            return made[: made.index(end) + 1]
    return made


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


def stages(logits, n_pieces):
    pieces = logits.unflatten(-1, (n_pieces, -1))
    values, indices = pieces.max(dim=-1)
    piece = values.argmax(dim=-1, keepdim=True)
    return piece, indices.gather(-1, piece), pieces.shape[-1]


def largest_token__one_stage(logits, n_pieces):
    return logits.argmax(dim=-1, keepdim=True)


def largest_token__within_the_piece(logits, n_pieces):
    return stages(logits, n_pieces)[1]


def largest_token__times_the_pieces(logits, n_pieces):
    piece, index, _ = stages(logits, n_pieces)
    return piece * n_pieces + index


def largest_token__not_b_by_1(logits, n_pieces):
    return largest_token(logits, n_pieces)[:, 0]


def largest_token__reads_the_piece(logits, n_pieces):
    found = []
    for row in logits.unflatten(-1, (n_pieces, -1)):
        values, indices = row.max(dim=-1)
        piece = values.argmax()
        found.append(piece * row.shape[-1] + indices[piece])  # an index of one number: waits
    return torch.stack(found)[:, None]


def largest_token__as_a_number(logits, n_pieces):
    piece, index, size = stages(logits, n_pieces)
    return (piece * size + index)[0].item()


def largest_token__right_by_rows(logits, n_pieces):
    values, indices = logits.view(len(logits), n_pieces, -1).max(dim=-1)
    rows = torch.arange(len(logits), device=logits.device)
    piece = values.argmax(dim=-1)
    return (piece * (logits.shape[1] // n_pieces) + indices[rows, piece])[:, None]


def largest_token__right_take_along_dim(logits, n_pieces):
    size = logits.shape[-1] // n_pieces
    starts = torch.arange(n_pieces, device=logits.device) * size
    values, indices = logits.unflatten(-1, (n_pieces, size)).max(dim=-1)
    return (indices + starts).take_along_dim(values.argmax(dim=-1, keepdim=True), dim=-1)
