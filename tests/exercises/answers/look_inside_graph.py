"""Answers to the exercises of *Look inside a graph*: wrong ones, and other right ones (`__right_`)."""


def trained(
    net,
    optimizer,
    inputs,
    targets,
    to_none=True,
    inside=lambda tensor: tensor,
    own=torch.clone,
    keep=torch.clone,
    restore=True,
    copy=True,
    empty=True,
    loss_of=torch.detach,
):
    """The capture, with a fault, if one is asked for."""
    static_inputs = own(inputs)
    static_targets = own(targets)

    def step():
        if empty:
            optimizer.zero_grad(set_to_none=to_none)
        loss = mse_loss(net(inside(static_inputs)), static_targets)
        loss.backward()
        optimizer.step()
        return loss_of(loss)

    with unchanged(*[net, optimizer][: 2 * restore]):
        replay = capture_step(step)

    def train(inputs, targets):
        if copy:
            static_inputs.copy_(inputs)
            static_targets.copy_(targets)
        return keep(replay())

    return train


def graphed_training__fills_and_adds(*given):
    return trained(*given, to_none=False)


def graphed_training__copies_the_input(*given):
    return trained(*given, inside=torch.clone)


def graphed_training__not_cloned(*given):
    return trained(*given, keep=lambda tensor: tensor)


def graphed_training__on_the_callers_tensors(*given):
    return trained(*given, own=lambda tensor: tensor)


def graphed_training__trained_by_the_warm_up(*given):
    return trained(*given, restore=False)


def graphed_training__not_copied(*given):
    return trained(*given, copy=False)


def graphed_training__never_emptied(*given):
    return trained(*given, empty=False)


def graphed_training__with_its_history(*given):
    return trained(*given, loss_of=lambda loss: loss)


def graphed_training__eager(net, optimizer, inputs, targets):
    def train(inputs, targets):
        optimizer.zero_grad()
        loss = mse_loss(net(inputs), targets)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return train


def graphed_training__right_with_static_inputs(net, optimizer, inputs, targets):
    def step(inputs, targets):
        optimizer.zero_grad()
        loss = mse_loss(net(inputs), targets)
        loss.backward()
        optimizer.step()
        return loss.detach()

    with unchanged(net, optimizer):
        replay = capture_step(step, inputs.clone(), targets.clone())
    return lambda inputs, targets: replay(inputs, targets).clone()


changed(
    graphed_training,
    right_with_grad={
        "def step():":
            "parameters = list(net.parameters())\n"
            "def step():",
        "optimizer.zero_grad(set_to_none=True)": "",
        "loss.backward()":
            "gradients = torch.autograd.grad(loss, parameters)\n"
            "for parameter, gradient in zip(parameters, gradients, strict=True):\n"
            "    parameter.grad = gradient",
    },
)


def every_pair(parameters, number, step=4, kind="f"):
    """All (parameter, offset) of a number, at multiples of step."""
    wanted = struct.pack(kind, number)
    return [
        (parameter, offset)
        for parameter, value in enumerate(parameters)
        for offset in range(0, len(value), step)
        if value[offset : offset + len(wanted)] == wanted
    ]


def find_number__the_first_of_several(parameters, number):
    return (every_pair(parameters, number) or [()])[0]


def find_number__the_last_of_several(parameters, number):
    return (every_pair(parameters, number) or [()])[-1]


def find_number__any_offset(parameters, number):
    found = every_pair(parameters, number, step=1)
    return found[0] if len(found) == 1 else ()


def find_number__double(parameters, number):
    found = every_pair(parameters, number, kind="d")
    return found[0] if len(found) == 1 else ()


def find_number__whole_parameters_only(parameters, number):
    wanted = struct.pack("f", number)
    found = [(place, 0) for place, value in enumerate(parameters) if value == wanted]
    return found[0] if len(found) == 1 else ()


def find_number__parameters_counted(parameters, number):
    wanted = struct.pack("f", number)
    found = [place for place, value in enumerate(parameters) if wanted in value]
    return (found[0], parameters[found[0]].find(wanted)) if len(found) == 1 else ()


def find_number__offset_in_floats(parameters, number):
    found = every_pair(parameters, number)
    return (found[0][0], found[0][1] // 4) if len(found) == 1 else ()


def find_number__right_by_counting(parameters, number):
    found, count = (), 0
    for place, value in enumerate(parameters):
        for offset in range(0, len(value) - 3, 4):
            if value[offset : offset + 4] == struct.pack("f", number):
                found, count = (place, offset), count + 1
    return found if count == 1 else ()


changed(
    find_number,
    D5_nearly_equal={
        "if value[offset:offset + 4] == wanted":
            "if abs(struct.unpack('f', value[offset:offset + 4])[0] - number) < 1e-6",
    },
)


def summed(left, right, sample, early=True, join="before", copy=True, clone=True, side=True):
    """The capture, with a fault, if one is asked for."""
    static_x = sample.clone()
    left(static_x)
    right(static_x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        main = torch.cuda.current_stream()
        other = torch.cuda.Stream() if side else main
        if early:
            other.wait_stream(main)
        right_result = right(static_x)
        if not early:
            other.wait_stream(main)
        with torch.cuda.stream(other):
            left_result = left(static_x)
        if join == "before":
            main.wait_stream(other)
        total = left_result + right_result
        if join == "after":
            main.wait_stream(other)

    def replay(x):
        if copy:
            static_x.copy_(x)
        graph.replay()
        return total.clone() if clone else total

    return replay


def sum_of_branches__forked_too_late(left, right, sample):
    return summed(left, right, sample, early=False)


def sum_of_branches__not_cloned(left, right, sample):
    return summed(left, right, sample, clone=False)


def sum_of_branches__not_joined(left, right, sample):
    return summed(left, right, sample, join="never")


def sum_of_branches__one_stream(left, right, sample):
    return summed(left, right, sample, side=False)


def sum_of_branches__not_copied(left, right, sample):
    return summed(left, right, sample, copy=False)


def sum_of_branches__eager(left, right, sample):
    return lambda x: left(x) + right(x)


def branches(left, right, sample, combine, joined=True):
    """Both branches, and what combine makes of their results before or after the join."""
    static_x = sample.clone()
    left(static_x)
    right(static_x)
    side = torch.cuda.Stream()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        main = torch.cuda.current_stream()
        side.wait_stream(main)
        with torch.cuda.stream(side):
            left_result = left(static_x)
        right_result = right(static_x)
        if joined:
            main.wait_stream(side)
        total = combine(left_result, right_result)
        if not joined:
            main.wait_stream(side)

    def replay(x):
        static_x.copy_(x)
        graph.replay()
        return total.clone()

    return replay


def sum_of_branches__D15_added_in_place_before_the_join(left, right, sample):
    return branches(left, right, sample, lambda a, b: b.add_(a), joined=False)


def sum_of_branches__right_stacked(left, right, sample):
    return branches(left, right, sample, lambda a, b: torch.stack([a, b]).sum(0))


def sum_of_branches__right_in_place(left, right, sample):
    return branches(left, right, sample, lambda a, b: a.add_(b))


def sum_of_branches__right_with_right_on_the_side(left, right, sample):
    return summed(right, left, sample)


def sum_of_branches__right_with_two_streams_and_events(left, right, sample):
    static_x = sample.clone()
    left(static_x)
    right(static_x)
    graph = torch.cuda.CUDAGraph()
    results = []
    with torch.cuda.graph(graph):
        forked = torch.cuda.current_stream().record_event()
        for work in (left, right):
            side = torch.cuda.Stream()
            side.wait_event(forked)
            with torch.cuda.stream(side):
                results.append(work(static_x))
                joined = side.record_event()
            torch.cuda.current_stream().wait_event(joined)
        total = results[0] + results[1]

    def replay(x):
        static_x.copy_(x)
        graph.replay()
        return total.clone()

    return replay


changed(
    sum_of_branches,
    R4_summed_after_the_replay={
        "total = left_result + right_result": "",
        "return total.clone()": "return left_result + right_result",
    },
)


def lanes_of(costs, order, lanes=2):
    """The lane of each work, where each goes to the lane that has least so far."""
    taken, lane_of = [0.0] * lanes, {}
    for number in order:
        lane_of[number] = taken.index(min(taken))
        taken[lane_of[number]] += costs[number]
    return lane_of


def branches_of(lane_of, works, join, fork, wanted):
    """The works, each in its lane, with a fault in forks, joins or results, if one is asked for."""
    streams = [torch.cuda.Stream() for _ in set(lane_of.values())]

    def branches(x):
        main, results = torch.cuda.current_stream(), {}
        if fork == "once":
            for stream in streams:
                stream.wait_stream(main)
        for number, lane in lane_of.items():
            if fork == "each":
                streams[lane].wait_stream(main)
            with torch.cuda.stream(streams[lane]):
                results[number] = works[number](x)
            if fork == "each":
                main.wait_stream(streams[lane])
        for stream in streams if join else ():
            main.wait_stream(stream)
        return [results[number] for number in wanted or range(len(works))]

    return branches


def captured_in(lane_of, works, sample, join=True, clone=True, fork="once", wanted=None, copy=True):
    """A capture with each work in its lane, and with a fault, if one is asked for."""
    replay = capture_step(branches_of(lane_of, works, join, fork, wanted), sample.clone())

    def use(x):
        results = replay(x) if copy else replay()
        return [result.clone() for result in results] if clone else results

    return use


def longest_first(costs):
    return sorted(range(len(costs)), key=lambda number: -costs[number])


def capture_in_lanes__eager(works, costs, sample):
    return lambda x: [work(x) for work in works]


def capture_in_lanes__one_stream(works, costs, sample):
    replay = capture_step(lambda x: [work(x) for work in works], sample.clone())
    return lambda x: [result.clone() for result in replay(x)]


def capture_in_lanes__in_the_given_order(works, costs, sample):
    return captured_in(lanes_of(costs, range(len(costs))), works, sample)


def capture_in_lanes__a_stream_each(works, costs, sample):
    return captured_in({number: number for number in range(len(works))}, works, sample)


def capture_in_lanes__not_joined(works, costs, sample):
    return captured_in(lanes_of(costs, longest_first(costs)), works, sample, join=False)


def capture_in_lanes__not_forked(works, costs, sample):
    return captured_in(lanes_of(costs, longest_first(costs)), works, sample, fork="never")


def capture_in_lanes__joined_after_each(works, costs, sample):
    return captured_in(lanes_of(costs, longest_first(costs)), works, sample, fork="each")


def capture_in_lanes__in_order_of_launch(works, costs, sample):
    order = longest_first(costs)
    return captured_in(lanes_of(costs, order), works, sample, wanted=order)


def capture_in_lanes__not_cloned(works, costs, sample):
    return captured_in(lanes_of(costs, longest_first(costs)), works, sample, clone=False)


def capture_in_lanes__not_copied(works, costs, sample):
    return captured_in(lanes_of(costs, longest_first(costs)), works, sample, copy=False)


def capture_in_lanes__right_with_two_side_streams(works, costs, sample):
    return captured_in(lanes_of(costs, longest_first(costs)), works, sample)
