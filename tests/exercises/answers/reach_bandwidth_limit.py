"""Answers to the exercises of *Reach the memory-bandwidth limit*: wrong ones, and other right ones (`__right_`)."""


def scale_of(x, eps):
    return torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + eps)


def fold_norm__eager(norm, linear, sample):
    return lambda x: linear(norm(x))


def fold_norm__norm_before_the_product(norm, linear, sample):
    replay = capture_step(lambda x: linear(norm(x)), sample.clone())
    return lambda x: replay(x).clone()


def fold_norm__folded_in_the_graph(norm, linear, sample):
    def step(x):
        return F.linear(x, linear.weight * norm.weight) * scale_of(x, norm.eps)

    replay = capture_step(step, sample.clone())
    return lambda x: replay(x).clone()


def fold_norm__changes_the_weight(norm, linear, sample):
    linear.weight.mul_(norm.weight)
    replay = capture_step(lambda x: linear(x) * scale_of(x, norm.eps), sample.clone())
    return lambda x: replay(x).clone()


def folded(norm, linear, sample, gain, eps, scale=None):
    weight = linear.weight * gain

    def step(x):
        return F.linear(x, weight) * (scale_of(x, eps) if scale is None else scale)

    replay = capture_step(step, sample.clone())
    return lambda x: replay(x).clone()


def fold_norm__no_eps(norm, linear, sample):
    return folded(norm, linear, sample, norm.weight, 0.0)


def fold_norm__no_gain(norm, linear, sample):
    return folded(norm, linear, sample, 1.0, norm.eps)


def fold_norm__gain_of_rows(norm, linear, sample):
    return folded(norm, linear, sample, norm.weight[:, None], norm.eps)


def fold_norm__frozen_scale(norm, linear, sample):
    return folded(norm, linear, sample, norm.weight, norm.eps, scale_of(sample, norm.eps))


def fold_norm__right_by_hand(norm, linear, sample):
    weight = (linear.weight * norm.weight).t().contiguous()
    static_x, graph = sample.clone(), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        static_y = static_x @ weight
        static_y = static_y / (static_x.pow(2).mean(dim=-1, keepdim=True) + norm.eps).sqrt()

    def replay(x):
        static_x.copy_(x)
        graph.replay()
        return static_y.clone()

    replay.weight = weight  # a graph holds addresses only
    return replay


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


def largest_token__as_a_number(logits, n_pieces):
    piece, index, size = stages(logits, n_pieces)
    return (piece * size + index)[0].item()


def largest_token__right_take_along_dim(logits, n_pieces):
    size = logits.shape[-1] // n_pieces
    starts = torch.arange(n_pieces, device=logits.device) * size
    values, indices = logits.unflatten(-1, (n_pieces, size)).max(dim=-1)
    return (indices + starts).take_along_dim(values.argmax(dim=-1, keepdim=True), dim=-1)


def scores_of(q, keys, seen):
    return (keys @ q[:, :, None])[..., 0].masked_fill(~seen, -torch.inf)


def seen_by(keys, input_pos):
    return torch.arange(keys.shape[1], device=keys.device) <= input_pos


def in_splits(q, keys, values, seen, n_splits, subtract=True, floor=-1e30):
    """The sum of the exponentials of each split, its largest score and its weighted values."""
    scores = scores_of(q, keys, seen).unflatten(1, (n_splits, -1))
    top = scores.amax(dim=-1, keepdim=True).clamp(min=floor)
    weights = (scores - top if subtract else scores).exp()
    y = (weights[..., None, :] @ values.unflatten(1, (n_splits, -1)))[..., 0, :]
    return y, weights.sum(dim=-1, keepdim=True), top


def combined(y, total, top):
    share = (top - top.amax(dim=1, keepdim=True)).exp()
    return (share * y).sum(dim=1) / (share * total).sum(dim=1)


def split_attention__one_stage(q, keys, values, input_pos, n_splits):
    weights = scores_of(q, keys, seen_by(keys, input_pos)).softmax(dim=-1)
    return (weights[:, None] @ values)[:, 0]


def split_attention__averaged(q, keys, values, input_pos, n_splits):
    seen = seen_by(keys, input_pos)
    y, total, _ = in_splits(q, keys, values, seen, n_splits)
    return (y / total.clamp(min=1e-30)).mean(dim=1)


def split_attention__empty_splits(q, keys, values, input_pos, n_splits):
    parts = in_splits(q, keys, values, seen_by(keys, input_pos), n_splits, floor=-torch.inf)
    return combined(*parts)


def split_attention__largest_not_subtracted(q, keys, values, input_pos, n_splits):
    seen = seen_by(keys, input_pos)
    y, total, _ = in_splits(q, keys, values, seen, n_splits, subtract=False)
    return y.sum(dim=1) / total.sum(dim=1)


def split_attention__not_itself(q, keys, values, input_pos, n_splits):
    return combined(*in_splits(q, keys, values, seen_by(keys, input_pos - 1), n_splits))


def split_attention__reads_the_position(q, keys, values, input_pos, n_splits):
    seen = torch.arange(keys.shape[1], device=keys.device) <= input_pos.item()
    return combined(*in_splits(q, keys, values, seen, n_splits))


def split_attention__right_by_logsumexp(q, keys, values, input_pos, n_splits):
    scores = scores_of(q, keys, seen_by(keys, input_pos)).unflatten(1, (n_splits, -1))
    shares = scores.logsumexp(dim=-1).softmax(dim=1)  # (n_heads, n_splits)
    weights = scores.softmax(dim=-1).nan_to_num(0.0) * shares[..., None]
    return (weights.flatten(1)[:, None] @ values)[:, 0]
