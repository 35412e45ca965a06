"""Answers to the exercises of *Look inside a graph*: wrong ones, and other right ones (`__right_`)."""


changed(
    graphed_training,
    fills_and_adds={"set_to_none=True": "set_to_none=False"},
    copies_the_input={"net(static_inputs)": "net(static_inputs.clone())"},
    on_the_callers_tensors={"inputs.clone()": "inputs", "targets.clone()": "targets"},
    not_copied={"static_inputs.copy_(inputs)": "", "static_targets.copy_(targets)": ""},
    never_emptied={"optimizer.zero_grad(set_to_none=True)": ""},
    with_its_history={"loss.detach()": "loss"},
    right_with_grad={
        "def step():": "parameters = list(net.parameters())\n…",
        "optimizer.zero_grad(set_to_none=True)": "",
        "loss.backward()":
            "gradients = torch.autograd.grad(loss, parameters)\n"
            "for parameter, gradient in zip(parameters, gradients, strict=True):\n"
            "    parameter.grad = gradient",
    },
)


def find_number__whole_parameters_only(parameters, number):
    wanted = struct.pack("f", number)
    found = [(place, 0) for place, value in enumerate(parameters) if value == wanted]
    return found[0] if len(found) == 1 else ()


def find_number__parameters_counted(parameters, number):
    wanted = struct.pack("f", number)
    found = [place for place, value in enumerate(parameters) if wanted in value]
    return (found[0], parameters[found[0]].find(wanted)) if len(found) == 1 else ()


def find_number__right_by_counting(parameters, number):
    found, count = (), 0
    for place, value in enumerate(parameters):
        for offset in range(0, len(value) - 3, 4):
            if value[offset : offset + 4] == struct.pack("f", number):
                found, count = (place, offset), count + 1
    return found if count == 1 else ()


changed(
    find_number,
    the_first_of_several={"found[0] if len(found) == 1 else ()": "(found or [()])[0]"},
    the_last_of_several={"found[0] if len(found) == 1 else ()": "(found or [()])[-1]"},
    any_offset={"range(0, len(value), 4)": "range(len(value))"},
    double={"struct.pack('f', number)": "struct.pack('d', number)", "offset + 4]": "offset + 8]"},
    offset_in_floats={"(parameter, offset)": "(parameter, offset // 4)"},
    nearly_equal={
        "if value[offset:offset + 4] == wanted":
            "if abs(struct.unpack('f', value[offset:offset + 4])[0] - number) < 1e-6",
    },
)


def capture_in_lanes__eager(works, costs, sample):
    return lambda x: [work(x) for work in works]


def capture_in_lanes__one_stream(works, costs, sample):
    replay = capture_step(lambda x: [work(x) for work in works], sample.clone())
    return lambda x: [result.clone() for result in replay(x)]


changed(
    capture_in_lanes,
    in_the_given_order={
        "sorted(range(len(works)), key=lambda number: -costs[number])": "range(len(works))",
    },
    a_stream_each={
        "side = torch.cuda.Stream()": "sides = [torch.cuda.Stream() for _ in works]",
        "side.wait_stream(main)": "for side in sides:\n    …",
        "torch.cuda.stream(side if lane else main)": "torch.cuda.stream(sides[number])",
        "main.wait_stream(side)": "for side in sides:\n    …",
    },
    joined_after_each={
        "with torch.cuda.stream(side if lane else main):\n    results[number] = works[number](x)":
            "side.wait_stream(main)\n"
            "…\n"
            "main.wait_stream(side)",
    },
    in_order_of_launch={"return results": "return [results[number] for number in lane_of]"},
    not_cloned={"[result.clone() for result in replay(x)]": "replay(x)"},
    not_copied={"replay(x)": "replay()"},
    right_with_two_side_streams={
        "side = torch.cuda.Stream()": "sides = [torch.cuda.Stream() for _ in taken]",
        "side.wait_stream(main)": "for side in sides:\n    …",
        "torch.cuda.stream(side if lane else main)": "torch.cuda.stream(sides[lane])",
        "main.wait_stream(side)": "for side in sides:\n    …",
    },
)
