"""Answers to the exercises of *Capture a mixture of experts*: wrong ones, and other right ones (`__right_`)."""

from torch.nn.functional import pad


def captured(step, sample):
    replay = capture_step(step, sample.clone())
    return lambda x: replay(x).clone()


def counting(layer, total):
    def step(x):
        y, kept = layer(x)
        total.add_((~kept).sum())
        return y

    return step


def graph_counted__warm_up_counted(layer, total, sample):
    return captured(counting(layer, total), sample)


def graph_counted__zeroed(layer, total, sample):
    multiply = captured(counting(layer, total), sample)
    total.zero_()
    return multiply


def graph_counted__another_total(layer, total, sample):
    def step(x):
        y, kept = layer(x)
        return y, total + (~kept).sum()

    replay = capture_step(step, sample.clone())
    return lambda x: replay(x)[0].clone()


def graph_counted__counted_the_kept(layer, total, sample):
    def step(x):
        y, kept = layer(x)
        total.add_(kept.sum())
        return y

    with unchanged(total):
        return captured(step, sample)


def graph_counted__drops_of_the_sample(layer, total, sample):
    dropped = (~layer(sample)[1]).sum().item()

    def step(x):
        total.add_(dropped)
        return layer(x)[0]

    with unchanged(total):
        return captured(step, sample)


def graph_counted__not_cloned(layer, total, sample):
    with unchanged(total):
        return capture_step(counting(layer, total), sample.clone())


def graph_counted__eager(layer, total, sample):
    return counting(layer, total)


def graph_counted__right_by_hand(layer, total, sample):
    def step(x):
        y, kept = layer(x)
        total.add_(len(x) - kept.sum())
        return y

    start = total.clone()
    replay = capture_step(step, sample.clone())
    total.copy_(start)
    return lambda x: replay(x).clone()


def graph_counted__right_in_place(layer, total, sample):
    def step(x):
        nonlocal total
        y, kept = layer(x)
        total += kept.logical_not().count_nonzero()
        return y

    with unchanged(total):
        return captured(step, sample)


def in_groups(x, order, counts, up):
    groups = x[order].split(counts)
    y = torch.cat([rows @ weight for rows, weight in zip(groups, up, strict=True)])
    return torch.empty_like(y).index_copy_(0, order, y)


def graph_counted__D16_added_outside(layer, total, sample):
    def step(x):
        y, kept = layer(x)
        return y, (~kept).sum()

    replay = capture_step(step, sample.clone())

    def call(x):
        y, drops = replay(x)
        total.add_(drops)
        return y.clone()

    return call


changed(
    graph_counted__counted_the_kept,
    last_alone={"total.add_(kept.sum())": "total.copy_((~kept).sum())"},
    a_number={"total.add_(kept.sum())": "total.add_((~kept).sum().item())"},
)


def graph_groups__frozen_counts(route, up, sample):
    counts = torch.bincount(route(sample), minlength=len(up)).tolist()

    def step(x):
        order = route(x).argsort(stable=True)
        return in_groups(x, order, counts, up)

    return captured(step, sample)


def graph_groups__frozen_order(route, up, sample):
    expert = route(sample)
    counts = torch.bincount(expert, minlength=len(up)).tolist()
    order = expert.argsort(stable=True)

    def step(x):
        return in_groups(x, order, counts, up)

    return captured(step, sample)


def graph_groups__counts_in_the_step(route, up, sample):
    def step(x):
        expert = route(x)
        order = expert.argsort(stable=True)
        counts = (expert[:, None] == torch.arange(len(up), device="cuda")).sum(0).tolist()
        return in_groups(x, order, counts, up)

    return captured(step, sample)


def graph_groups__captured_anew(route, up, sample):
    def multiply(x):
        y = capture_step(lambda x: x @ up, x.clone())()
        return y[route(x), torch.arange(len(x), device="cuda")].clone()

    return multiply


def graph_groups__not_cloned(route, up, sample):
    def step(x):
        return (x @ up)[route(x), torch.arange(len(x), device="cuda")]

    return capture_step(step, sample.clone())


def graph_groups__eager(route, up, sample):
    return lambda x: (x @ up)[route(x), torch.arange(len(x), device="cuda")]


def graph_groups__right_around(route, up, sample):
    def before(x):
        expert = route(x)
        order = expert.argsort(stable=True)
        counts = (expert[:, None] == torch.arange(len(up), device="cuda")).sum(0)
        return x[order], order, counts

    first = capture_step(before, sample.clone())
    _, order, _ = first()
    y = sample.new_zeros(len(sample), up.shape[2])
    second = capture_step(lambda: torch.empty_like(y).index_copy_(0, order, y))

    def multiply(x):
        rows, _, counts = first(x)
        groups = rows.split(counts.tolist())
        y.copy_(torch.cat([a @ weight for a, weight in zip(groups, up, strict=True)]))
        return second().clone()

    return multiply


def graph_groups__right_gather(route, up, sample):
    return captured(lambda x: (x[:, None] @ up[route(x)])[:, 0], sample)


changed(
    graph_groups__as_given,
    twice_the_largest_group={
        "capacity = torch.bincount(route(sample))": "capacity = 2 * torch.bincount(route(sample))",
        "replay = capture_step(step, sample.clone())\n"
        "return lambda x: replay(x).clone()":
            "return captured(step, sample)",
    },
)


def smallest(loads, share=0.01):
    capacity = 1
    while (loads - capacity).clamp(min=0).sum() > share * loads.sum():
        capacity += 1
    return capacity


def two_graphs(layer, capacity, sample):
    small = capture_step(lambda x: layer(x, capacity), sample.clone())
    large = capture_step(lambda x: layer(x, len(x)), sample.clone())
    return small, large


def with_second(small, large):
    def multiply(x):
        y, kept = small(x)
        return y.clone() if kept.all() else large(x)[0].clone()

    return multiply


def graph_two_capacities__of_the_largest_load(layer, loads, sample):
    small, large = two_graphs(layer, loads.max().item(), sample)

    return with_second(small, large)


def graph_two_capacities__of_the_sample(layer, loads, sample):
    capacity = 1
    while not layer(sample, capacity)[1].all():
        capacity += 1
    small, large = two_graphs(layer, capacity, sample)

    return with_second(small, large)


def graph_two_capacities__drops(layer, loads, sample):
    small, _ = two_graphs(layer, smallest(loads), sample)
    return lambda x: small(x)[0].clone()


def graph_two_capacities__both_each_time(layer, loads, sample):
    small, large = two_graphs(layer, smallest(loads), sample)

    def multiply(x):
        y, kept = small(x)
        other, _ = large(x)
        return torch.where(kept.all(), y, other).clone()

    return multiply


def graph_two_capacities__the_worst_case_alone(layer, loads, sample):
    capture_step(lambda x: layer(x, smallest(loads)), sample.clone())
    large = capture_step(lambda x: layer(x, len(x)), sample.clone())
    return lambda x: large(x)[0].clone()


def graph_two_capacities__if_in_the_step(layer, loads, sample):
    def step(x):
        y, kept = layer(x, smallest(loads))
        return y if kept.all() else layer(x, len(x))[0]

    return captured(step, sample)


def graph_two_capacities__captured_late(layer, loads, sample):
    small = capture_step(lambda x: layer(x, smallest(loads)), sample.clone())

    def multiply(x):
        y, kept = small(x)
        if not kept.all():
            y = capture_step(lambda x: layer(x, len(x)), x.clone())()[0]
        return y.clone()

    return multiply


def graph_two_capacities__not_cloned(layer, loads, sample):
    small, large = two_graphs(layer, smallest(loads), sample)

    def multiply(x):
        y, kept = small(x)
        return y if kept.all() else large(x)[0]

    return multiply


def graph_two_capacities__right_searched(layer, loads, sample):
    allowed = loads.sum().item() // 100
    capacities = range(1, loads.max().item() + 1)
    capacity = next(c for c in capacities if (loads - c).clamp(min=0).sum().item() <= allowed)
    small, large = two_graphs(layer, capacity, sample)

    def multiply(x):
        y, kept = small(x)
        dropped = len(x) - kept.sum().item()
        return large(x)[0].clone() if dropped else y.clone()

    return multiply


def graph_two_capacities__right_flag_in_the_graph(layer, loads, sample):
    capacity = smallest(loads)

    def step(x):
        y, kept = layer(x, capacity)
        return y, (~kept).any()

    small = capture_step(step, sample.clone())
    large = capture_step(lambda x: layer(x, len(x))[0], sample.clone())

    def multiply(x):
        y, is_short = small(x)
        return (large(x) if is_short else y).clone()

    return multiply


def graph_my_experts__back_by_expert(up, exchange, world_size, sample):
    n_mine = len(up)

    def step(buffer):
        received = exchange(buffer.view(world_size, n_mine, *buffer.shape[1:]))
        y = received.transpose(0, 1).flatten(1, 2) @ up
        y = y.view(world_size, n_mine, buffer.shape[1], -1)
        return exchange(y).flatten(0, 1)

    return captured(step, sample)


def graph_my_experts__not_returned(up, exchange, world_size, sample):
    n_mine = len(up)

    def step(buffer):
        received = exchange(buffer.view(world_size, n_mine, *buffer.shape[1:]))
        return (received @ up).flatten(0, 1)

    return captured(step, sample)


def graph_my_experts__parts_by_expert(up, exchange, world_size, sample):
    return captured(lambda buffer: exchange(buffer @ up[0]), sample)


def graph_my_experts__not_cloned(up, exchange, world_size, sample):
    def step(buffer):
        received = exchange(buffer.view(world_size, len(up), *buffer.shape[1:]))
        return exchange(received @ up).flatten(0, 1)

    return capture_step(step, sample.clone())


def graph_my_experts__eager(up, exchange, world_size, sample):
    def step(buffer):
        received = exchange(buffer.view(world_size, len(up), *buffer.shape[1:]))
        return exchange(received @ up).flatten(0, 1)

    step(sample)
    return step


def graph_my_experts__right_broadcast(up, exchange, world_size, sample):
    def step(buffer):
        received = exchange(buffer.view(world_size, len(up), *buffer.shape[1:]))
        return exchange((received @ up).contiguous()).flatten(0, 1)

    replay = capture_step(step, sample.clone())
    return lambda buffer: replay(buffer).clone()


changed(
    graph_my_experts__back_by_expert,
    reshaped={
        "y = received.transpose(0, 1).flatten(1, 2) @ up":
            "y = received.view(n_mine, -1, buffer.shape[2]) @ up",
    },
    not_contiguous={
        "view(world_size, n_mine, buffer.shape[1], -1)":
            "view(n_mine, world_size, buffer.shape[1], -1).transpose(0, 1)",
    },
)
