"""Answers to the exercises of *Split a decoder over two GPUs*: wrong ones, and other right ones (`__right_`)."""

import torch


def captured(step, sample):
    replay = capture_step(step, sample.clone())
    return lambda x: replay(x).clone()


def shares(up, down, rank, world_size):
    up_share = up.weight.chunk(world_size)[rank], up.bias.chunk(world_size)[rank]
    return up_share, down.weight.chunk(world_size, dim=1)[rank].contiguous()


def graph_feed_forward__bias_twice(up, down, all_reduce, rank, world_size, sample):
    up_share, down_weight = shares(up, down, rank, world_size)

    def step(x):
        return all_reduce(F.linear(F.linear(x, *up_share).relu(), down_weight, down.bias))

    return captured(step, sample)


def graph_feed_forward__no_bias(up, down, all_reduce, rank, world_size, sample):
    up_share, down_weight = shares(up, down, rank, world_size)

    def step(x):
        return all_reduce(F.linear(F.linear(x, *up_share).relu(), down_weight))

    return captured(step, sample)


def graph_feed_forward__no_hidden_bias(up, down, all_reduce, rank, world_size, sample):
    (up_weight, _), down_weight = shares(up, down, rank, world_size)

    def step(x):
        hidden = F.linear(x, up_weight).relu()
        return all_reduce(F.linear(hidden, down_weight)) + down.bias

    return captured(step, sample)


def graph_feed_forward__not_reduced(up, down, all_reduce, rank, world_size, sample):
    up_share, down_weight = shares(up, down, rank, world_size)

    def step(x):
        return F.linear(F.linear(x, *up_share).relu(), down_weight, down.bias)

    return captured(step, sample)


def graph_feed_forward__not_split(up, down, all_reduce, rank, world_size, sample):
    replay = capture_step(lambda x: all_reduce(down(up(x).relu())), sample.clone())
    return lambda x: replay(x).clone()


def graph_feed_forward__D1_whole_layer_divided(up, down, all_reduce, rank, world_size, sample):
    return captured(lambda x: all_reduce(down(F.relu(up(x))) / world_size), sample)


def share_of_layer(up, down, all_reduce, rank, world_size):
    up_share, down_weight = shares(up, down, rank, world_size)

    def step(x):
        return all_reduce(F.linear(F.linear(x, *up_share).relu(), down_weight)) + down.bias

    return step


def graph_feed_forward__reduced_outside(up, down, all_reduce, rank, world_size, sample):
    up_share, down_weight = shares(up, down, rank, world_size)

    def step(x):
        return F.linear(F.linear(x, *up_share).relu(), down_weight)

    replay = capture_step(step, sample.clone())
    return lambda x: all_reduce(replay(x)) + down.bias


def graph_feed_forward__not_cloned(up, down, all_reduce, rank, world_size, sample):
    step = share_of_layer(up, down, all_reduce, rank, world_size)
    return capture_step(step, sample.clone())


def graph_feed_forward__eager(up, down, all_reduce, rank, world_size, sample):
    return share_of_layer(up, down, all_reduce, rank, world_size)


def graph_feed_forward__right_bias_on_rank_0(up, down, all_reduce, rank, world_size, sample):
    up_share, down_weight = shares(up, down, rank, world_size)
    bias = down.bias if rank == 0 else None

    def step(x):
        return all_reduce(F.linear(F.linear(x, *up_share).relu(), down_weight, bias))

    return captured(step, sample)


def graph_feed_forward__right_share_of_the_bias(up, down, all_reduce, rank, world_size, sample):
    up_share, down_weight = shares(up, down, rank, world_size)
    bias = down.bias / world_size

    def step(x):
        return all_reduce(F.linear(F.linear(x, *up_share).relu(), down_weight, bias))

    return captured(step, sample)


def graph_feed_forward__always_rank_0(up, down, all_reduce, rank, world_size, sample):
    return graph_feed_forward(up, down, all_reduce, 0, world_size, sample)


def graph_feed_forward__right_by_hand(up, down, all_reduce, rank, world_size, sample):
    up_share, down_weight = shares(up, down, rank, world_size)
    static_x = sample.clone()
    all_reduce(F.linear(F.linear(static_x, *up_share).relu(), down_weight))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = all_reduce(F.linear(F.linear(static_x, *up_share).relu(), down_weight))
        result = result + down.bias

    def replay(x):
        static_x.copy_(x)
        graph.replay()
        return result.clone()

    replay.weight = down_weight  # a graph holds addresses only
    return replay


def two_layers(first, second, total):
    def step(x):
        y = total(first(x))
        return y + total(second(y))

    return step


def graph_two_layers__overwritten(first, second, exchange, buffer, sample):
    def total(x):
        buffer.copy_(x)
        return exchange(buffer)

    return captured(two_layers(first, second, total), sample)


def graph_two_layers__result_not_cloned(first, second, exchange, buffer, sample):
    def total(x):
        buffer.copy_(x)
        return exchange(buffer).clone()

    return capture_step(two_layers(first, second, total), sample.clone())


def graph_two_layers__eager(first, second, exchange, buffer, sample):
    def total(x):
        buffer.copy_(x)
        return exchange(buffer).clone()

    step = two_layers(first, second, total)
    step(sample)
    return step


def graph_two_layers__right_one_clone(first, second, exchange, buffer, sample):
    def step(x):
        buffer.copy_(first(x))
        y = exchange(buffer).clone()
        buffer.copy_(second(y))
        return exchange(buffer) + y

    return captured(step, sample)


def graph_best_token__no_offset(head, gather, rank, sample):
    def step(x):
        values, tokens = gather(*(x @ head.t()).max(dim=-1))
        return tokens.gather(0, values.argmax(dim=0)[None])[0]

    return captured(step, sample)


def graph_best_token__own_best(head, gather, rank, sample):
    def step(x):
        values, tokens = (x @ head.t()).max(dim=-1)
        return gather(values, tokens + rank * len(head))[1][rank]

    return captured(step, sample)


def best_token(head, gather, rank):
    def step(x):
        values, tokens = (x @ head.t()).max(dim=-1)
        values, tokens = gather(values, tokens + rank * len(head))
        return tokens.gather(0, values.argmax(dim=0)[None])[0]

    return step


def graph_best_token__all_logits(head, gather, rank, sample):
    def step(x):
        logits = x @ head.t()
        tokens = torch.arange(len(head), device="cuda").expand_as(logits) + rank * len(head)
        values, tokens = gather(logits, tokens)
        best = values.movedim(0, 1).flatten(1).argmax(dim=-1, keepdim=True)
        return tokens.movedim(0, 1).flatten(1).gather(1, best)[:, 0]

    return captured(step, sample)


def graph_best_token__not_cloned(head, gather, rank, sample):
    return capture_step(best_token(head, gather, rank), sample.clone())


def graph_best_token__eager(head, gather, rank, sample):
    step = best_token(head, gather, rank)
    step(sample)
    return step


def graph_best_token__R4_keeps_its_own_if_two_tie(head, gather, rank, sample):
    def step(x):
        values, tokens = (x @ head.t()).max(dim=-1)
        values, tokens = gather(values, tokens + rank * len(head))
        other = 1 - rank
        return torch.where(values[other] > values[rank], tokens[other], tokens[rank])

    return captured(step, sample)


def graph_best_token__right_the_later_one_if_two_tie(head, gather, rank, sample):
    def step(x):
        values, tokens = (x @ head.t()).max(dim=-1)
        values, tokens = gather(values, tokens + rank * len(head))
        return torch.where(values[1] >= values[0], tokens[1], tokens[0])

    return captured(step, sample)


changed(
    graph_best_token__right_the_later_one_if_two_tie,
    smallest={
        "torch.where(values[1] >= values[0], tokens[1], tokens[0])":
            "tokens.gather(0, values.argmin(dim=0)[None])[0]",
    },
    right_where={"[1] >= values[0]": "[1] > values[0]"},
)
