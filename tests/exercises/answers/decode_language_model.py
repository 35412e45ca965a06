"""Answers to the exercises of *Decode a language model*: wrong ones, and other right ones (`__right_`)."""


changed(
    make_responder,
    only_cloned={
        "def respond(prompt, count):":
            "…\n    own = new_kv_cache(config, 1, 'cuda', torch.float32)",
        "model(prompt, positions, kv_cache)": "model(prompt, positions, own)",
        "input_pos.fill_(prompt.shape[1])": "",
    },
    new_cache={
        "def respond(prompt, count):":
            "…\n    own = new_kv_cache(config, 1, 'cuda', torch.float32)",
        "model(prompt, positions, kv_cache)": "model(prompt, positions, own)",
    },
    position_goes_on={"input_pos.fill_(prompt.shape[1])": ""},
    one_before={"input_pos.fill_(prompt.shape[1])": "input_pos.fill_(prompt.shape[1] - 1)"},
    captured_for_each_prompt={
        "made = [tokens.clone()]": "replay = capture_step(step, warmup=0)\n…",
    },
    eager={"replay()": "step()"},
    right_one_warm_up={"capture_step(step)": "capture_step(step, warmup=1)"},
)


def graph_rows__a_graph_for_each_row(model, config, prompts):
    pairs = [graph_rows(model, config, [prompt]) for prompt in prompts]
    first = torch.cat([tokens for tokens, _ in pairs])
    return first, lambda: torch.cat([following() for _, following in pairs])


def graph_rows__padded(model, config, prompts):
    longest = max(prompt.shape[1] for prompt in prompts)
    padded = [torch.nn.functional.pad(prompt, (0, longest - prompt.shape[1])) for prompt in prompts]
    return graph_rows(model, config, padded)


changed(
    graph_rows,
    longest_position={
        "[[prompt.shape[1]] for prompt in prompts]":
            "[[max(prompt.shape[1] for prompt in prompts)]] * len(prompts)",
    },
    shortest_position={
        "[[prompt.shape[1]] for prompt in prompts]":
            "[[min(prompt.shape[1] for prompt in prompts)]] * len(prompts)",
    },
    eager={"replay()": "step()"},
    only_the_function={"(tokens.clone(), following)": "following"},
    right_most_of_the_prompt_first={
        "first = []": "",
        "first.append(sample(model(prompt, positions, kv_cache[:, :, row:row + 1])))":
            "model(prompt, positions, kv_cache[:, :, row:row + 1])",
        "(first)": "([prompt[:, -1:] for prompt in prompts])",
        "[prompt.shape[1]] for prompt in": "[prompt.shape[1] - 1] for prompt in",
        "return (tokens.clone(), following)": "return (following(), following)",
    },
)


def generate__eager(model, tokens, input_pos, kv_cache, end, every, limit):
    made = []
    while len(made) < limit and end not in made:
        tokens = sample(model(tokens, input_pos, kv_cache))
        input_pos = input_pos + 1
        made.append(tokens.item())
    return made


def generate__token_before_the_step(model, tokens, input_pos, kv_cache, end, every, limit):
    first = tokens.item()
    return [first, *generate(model, tokens, input_pos, kv_cache, end, every, limit)][:limit]


changed(
    generate,
    read_inside={"tokens.clone()": "tokens.item()", "torch.cat(made, dim=1)": "made"},
    one_token_a_graph={"range(every)": "range(1)"},
    without_the_end={"made.index(end) + 1": "made.index(end)"},
    three_warm_ups={"warmup=1": "warmup=3"},
    end_behind_the_limit={
        "made = made[:limit]": "",
        "if end in made else made": "if end in made else made[:limit]",
    },
    right_token_by_token={
        "while len(made) < limit and end not in made:\n    made += replay()[0].tolist()":
            "while True:\n"
            "    for token in replay().flatten().tolist():\n"
            "        made.append(token)\n"
            "        if token == end or len(made) == limit:\n"
            "            return made",
        "made = made[:limit]": "",
        "return made[:made.index(end) + 1] if end in made else made": "",
    },
)
