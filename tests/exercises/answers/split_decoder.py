"""Answers to the exercises of *Split a decoder over two GPUs*: wrong ones, and other right ones (`__right_`)."""

import torch


def captured(step, sample):
    replay = capture_step(step, sample.clone())
    return lambda x: replay(x).clone()


def graph_feed_forward__not_split(up, down, all_reduce, rank, world_size, sample):
    replay = capture_step(lambda x: all_reduce(down(up(x).relu())), sample.clone())
    return lambda x: replay(x).clone()


def graph_feed_forward__whole_layer_divided(up, down, all_reduce, rank, world_size, sample):
    return captured(lambda x: all_reduce(down(F.relu(up(x))) / world_size), sample)


def graph_feed_forward__always_rank_0(up, down, all_reduce, rank, world_size, sample):
    return graph_feed_forward(up, down, all_reduce, 0, world_size, sample)


changed(
    graph_feed_forward,
    bias_twice={
        "(F.linear(hidden, down_weight)) + down.bias": "(F.linear(hidden, down_weight, down.bias))",
    },
    no_bias={" + down.bias": ""},
    no_hidden_bias={"up_weight, up_bias)": "up_weight)"},
    not_reduced={
        "all_reduce(F.linear(hidden, down_weight)) + down.bias":
            "F.linear(hidden, down_weight, down.bias)",
    },
    reduced_outside={
        "all_reduce(F.linear(hidden, down_weight)) + down.bias": "F.linear(hidden, down_weight)",
        "replay(x).clone()": "all_reduce(replay(x)) + down.bias",
    },
    always_halves={
        "up.weight.chunk(world_size)": "up.weight.chunk(2)",
        "up.bias.chunk(world_size)": "up.bias.chunk(2)",
        "down.weight.chunk(world_size, dim=1)": "down.weight.chunk(2, dim=1)",
    },
    right_bias_on_rank_0={
        "all_reduce(F.linear(hidden, down_weight)) + down.bias":
            "all_reduce(F.linear(hidden, down_weight, None if rank else down.bias))",
    },
    right_share_of_the_bias={
        "all_reduce(F.linear(hidden, down_weight)) + down.bias":
            "all_reduce(F.linear(hidden, down_weight, down.bias / world_size))",
    },
)


def graph_two_layers__right_one_clone(first, second, exchange, buffer, sample):
    def step(x):
        buffer.copy_(first(x))
        y = exchange(buffer).clone()
        buffer.copy_(second(y))
        return exchange(buffer) + y

    return captured(step, sample)


def graph_best_token__all_logits(head, gather, rank, sample):
    def step(x):
        logits = x @ head.t()
        tokens = torch.arange(len(head), device="cuda").expand_as(logits) + rank * len(head)
        values, tokens = gather(logits, tokens)
        best = values.movedim(0, 1).flatten(1).argmax(dim=-1, keepdim=True)
        return tokens.movedim(0, 1).flatten(1).gather(1, best)[:, 0]

    return captured(step, sample)


changed(
    graph_best_token,
    no_offset={" + rank * len(head)": ""},
    own_best={"tokens.gather(0, values.argmax(dim=0)[None])[0]": "tokens[rank]"},
    smallest={"values.argmax": "values.argmin"},
    floats={"tokens + rank * len(head)": "(tokens + rank * len(head)).float()"},
    keeps_its_own_if_two_tie={
        "tokens.gather(0, values.argmax(dim=0)[None])[0]":
            "torch.where(values[1 - rank] > values[rank], tokens[1 - rank], tokens[rank])",
    },
    right_the_later_one_if_two_tie={
        "tokens.gather(0, values.argmax(dim=0)[None])[0]":
            "torch.where(values[1] >= values[0], tokens[1], tokens[0])",
    },
    right_where={
        "tokens.gather(0, values.argmax(dim=0)[None])[0]":
            "torch.where(values[1] > values[0], tokens[1], tokens[0])",
    },
)
