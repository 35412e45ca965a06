"""Answers to the exercises of *Capture a mixture of experts*: wrong ones, and other right ones (`__right_`)."""


def captured(step, sample):
    replay = capture_step(step, sample.clone())
    return lambda x: replay(x).clone()


def graph_counted__another_total(layer, total, sample):
    def step(x):
        y, kept = layer(x)
        return y, total + (~kept).sum()

    replay = capture_step(step, sample.clone())
    return lambda x: replay(x)[0].clone()


def in_groups(x, order, counts, up):
    groups = x[order].split(counts)
    y = torch.cat([rows @ weight for rows, weight in zip(groups, up, strict=True)])
    return torch.empty_like(y).index_copy_(0, order, y)


changed(
    graph_counted,
    zeroed={"unchanged(total)": "unchanged()", "return lambda x:": "total.zero_()\n…"},
    counted_the_kept={"(~kept).sum()": "kept.sum()"},
    last_alone={"total.add_": "total.copy_"},
    a_number={"(~kept).sum()": "(~kept).sum().item()"},
    drops_of_the_sample={
        "def step(x):": "dropped = (~layer(sample)[1]).sum().item()\n…",
        "(~kept).sum()": "dropped",
    },
    right_in_place={
        "def step(x):": "…\n    nonlocal total",
        "total.add_((~kept).sum())": "total += kept.logical_not().count_nonzero()",
    },
)


changed(
    graph_counted__another_total,
    added_outside={
        "total + ": "",
        "return lambda x: replay(x)[0].clone()":
            "def call(x):\n"
            "    y, drops = replay(x)\n"
            "    total.add_(drops)\n"
            "    return y.clone()\n"
            "return call",
    },
)


def graph_groups__frozen_counts(route, up, sample):
    counts = torch.bincount(route(sample), minlength=len(up)).tolist()

    def step(x):
        order = route(x).argsort(stable=True)
        return in_groups(x, order, counts, up)

    return captured(step, sample)


changed(
    graph_groups__frozen_counts,
    frozen_order={
        "def step(x):": "order = route(sample).argsort(stable=True)\n…",
        "order = route(x).argsort(stable=True)": "",
    },
    counts_in_the_step={
        "counts = torch.bincount(route(sample), minlength=len(up)).tolist()": "",
        "order = route(x).argsort(stable=True)":
            "counts = (route(x)[:, None] == torch.arange(len(up), device='cuda')).sum(0).tolist()\n…",
    },
)


def graph_groups__captured_anew(route, up, sample):
    def multiply(x):
        y = capture_step(lambda x: x @ up, x.clone())()
        return y[route(x), torch.arange(len(x), device="cuda")].clone()

    return multiply


def graph_groups__right_gather(route, up, sample):
    return captured(lambda x: (x[:, None] @ up[route(x)])[:, 0], sample)


changed(
    graph_groups__as_given,
    twice_the_largest_group={"torch.bincount(route(sample))": "2 * torch.bincount(route(sample))"},
)


changed(
    graph_two_capacities,
    overflows_counted={"(loads - capacity).clamp(min=0).sum()": "(loads > capacity).sum()"},
    of_the_sample={
        "(loads - capacity).clamp(min=0).sum() > 0.01 * loads.sum()":
            "not layer(sample, capacity)[1].all()",
    },
    drops={"not kept.all()": "False"},
    both_each_time={
        "if not kept.all():\n    y, _ = large()":
            "other, _ = large()\ny = torch.where(kept.all(), y, other)",
    },
    if_in_the_step={
        "small = capture_step(lambda x: layer(x, capacity), static_x)":
            "def step(x):\n"
            "    y, kept = layer(x, capacity)\n"
            "    return (y if kept.all() else layer(x, len(x))[0], kept)\n"
            "small = capture_step(step, static_x)",
    },
    captured_late={
        "large = capture_step(lambda x: layer(x, len(x)), static_x)": "",
        "large()": "capture_step(lambda x: layer(x, len(x)), x.clone())()",
    },
    right_flag_in_the_graph={
        "small = capture_step(lambda x: layer(x, capacity), static_x)":
            "def step(x):\n"
            "    y, kept = layer(x, capacity)\n"
            "    return (y, (~kept).any())\n"
            "small = capture_step(step, static_x)",
        "y, kept = small(x)": "y, is_short = small(x)",
        "not kept.all()": "is_short",
    },
)
