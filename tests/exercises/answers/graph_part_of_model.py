"""Answers to the exercises of *Graph part of a model*: wrong ones, and other right ones (`__right_`)."""


def graph_middle__right_drawn_sample(net, inputs):
    sample = torch.randn_like(net[0](inputs)).requires_grad_()
    torch.cuda.make_graphed_callables(net[1], (sample,))
    return net


def graph_middle__right_in_inference_mode(net, inputs):
    with torch.inference_mode():
        sample = net[0](inputs)
    net[1] = torch.cuda.make_graphed_callables(net[1], (sample.clone().requires_grad_(),))
    return net


def graph_middle__right_under_no_grad(net, inputs):
    with torch.no_grad():
        sample = net[0](inputs)
    net[1] = torch.cuda.make_graphed_callables(net[1], (sample.requires_grad_(),))
    return net


def graph_middle__sample_without_gradient(net, inputs):
    with torch.no_grad():
        sample = net[0](inputs)
    net[1] = torch.cuda.make_graphed_callables(net[1], (sample,))
    return net


def graph_middle__whole_model(net, inputs):
    return torch.cuda.make_graphed_callables(net, (inputs,))


def graph_middle__forward_by_hand(net, inputs):
    part, static = net[1], net[0](inputs).detach()
    part(static)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph), torch.no_grad():
        output = part(static)

    def forward(hidden):
        static.copy_(hidden.detach())
        graph.replay()
        return output.clone().requires_grad_()

    part.forward = forward
    return net


def graph_middle__sample_of_the_model(net, inputs):
    net[1] = torch.cuda.make_graphed_callables(net[1], (inputs.requires_grad_(),))
    return net


def graph_middle__sample_of_one_row(net, inputs):
    sample = net[0](inputs)[:1].detach().requires_grad_()
    net[1] = torch.cuda.make_graphed_callables(net[1], (sample,))
    return net


def graph_middle__sample_with_a_history(net, inputs):
    net[1] = torch.cuda.make_graphed_callables(net[1], (net[0](inputs),))
    return net


def graph_middle__eager(net, inputs):
    return net


changed(
    graph_middle,
    no_warm_up={"(net[1], (sample,))": "(net[1], (sample,), num_warmup_iters=0)"},
)


def graph_second__right_eval_for_the_sample_only(net, inputs):
    net.eval()
    with torch.no_grad():
        sample = net[0](inputs)
    net.train()
    net[1] = torch.cuda.make_graphed_callables(net[1], (sample.requires_grad_(),))
    return net


def graph_second__right_only_the_first_part_in_eval(net, inputs):
    net[0].eval()
    sample = net[0](inputs).detach().requires_grad_()
    net[0].train()
    torch.cuda.make_graphed_callables(net[1], (sample,))
    return net


def graph_second__left_in_eval(net, inputs):
    net.eval()
    sample = net[0](inputs).detach().requires_grad_()
    net[1] = torch.cuda.make_graphed_callables(net[1], (sample,))
    return net


def graph_second__dropout_left_in_eval(net, inputs):
    net[1][2].eval()
    sample = net[0](inputs).detach().requires_grad_()
    net[1] = torch.cuda.make_graphed_callables(net[1], (sample,))
    return net.train()


changed(
    graph_second,
    mode_alone={"sample.requires_grad_(),": "sample,"},
)


def graph_around__right_new_sequential(net, inputs):
    hidden = net[1](net[0](inputs)).detach().requires_grad_()
    samples = ((inputs.clone(),), (hidden,))
    first, last = torch.cuda.make_graphed_callables((net[0], net[2]), samples)
    return torch.nn.Sequential(first, net[1], last)


def graph_around__right_drawn_sample(net, inputs):
    hidden = torch.randn_like(net[1](net[0](inputs))).requires_grad_()
    torch.cuda.make_graphed_callables((net[0], net[2]), ((inputs.clone(),), (hidden,)))
    return net


def graph_around__two_calls(net, inputs):
    with torch.no_grad():
        hidden = net[1](net[0](inputs))
    net[0] = torch.cuda.make_graphed_callables(net[0], (inputs,))
    net[2] = torch.cuda.make_graphed_callables(net[2], (hidden.requires_grad_(),))
    return net


def graph_around__last_part_first(net, inputs):
    with torch.no_grad():
        hidden = net[1](net[0](inputs))
    samples = ((hidden.requires_grad_(),), (inputs,))
    net[2], net[0] = torch.cuda.make_graphed_callables((net[2], net[0]), samples)
    return net


def graph_around__sample_without_gradient(net, inputs):
    with torch.no_grad():
        hidden = net[1](net[0](inputs))
    net[0], net[2] = torch.cuda.make_graphed_callables((net[0], net[2]), ((inputs,), (hidden,)))
    return net


def graph_around__one_part(net, inputs):
    with torch.no_grad():
        hidden = net[1](net[0](inputs))
    net[2] = torch.cuda.make_graphed_callables(net[2], (hidden.requires_grad_(),))
    return net


def graph_around__whole_model(net, inputs):
    return torch.cuda.make_graphed_callables(net, (inputs,))


def graph_around__sample_of_one_row(net, inputs):
    hidden = net[0](inputs)[:1].detach().requires_grad_()
    samples = ((inputs,), (hidden,))
    net[0], net[2] = torch.cuda.make_graphed_callables((net[0], net[2]), samples)
    return net


def graph_around__the_callers_batch(net, inputs):
    hidden = net[1](net[0](inputs)).detach().requires_grad_()
    torch.cuda.make_graphed_callables((net[0], net[2]), ((inputs,), (hidden,)))
    return net


def graph_around__eager(net, inputs):
    return net


def graph_around__no_warm_up(net, inputs):
    with torch.no_grad():
        hidden = net[1](net[0](inputs))
    samples = ((inputs,), (hidden.requires_grad_(),))
    torch.cuda.make_graphed_callables((net[0], net[2]), samples, num_warmup_iters=0)
    return net


def make_solver__right_with_capture_step(one_round, x):
    from helpers.capture import capture_step

    static_z, static_x = torch.zeros_like(x), x.clone()
    replay = capture_step(one_round, static_z, static_x)

    def solve(x):
        static_x.copy_(x)
        static_z.zero_()
        while replay().item() > 0.01:
            pass
        return static_z.clone()

    return solve


def make_solver__right_moved_set_to_infinity(one_round, x):
    static_x, static_z = x.clone(), torch.zeros_like(x)
    side_stream = torch.cuda.Stream()
    side_stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side_stream):
        one_round(static_z, static_x)
    torch.cuda.current_stream().wait_stream(side_stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        moved = one_round(static_z, static_x)

    def solve(x):
        static_x.copy_(x)
        static_z.zero_()
        moved.fill_(torch.inf)
        while moved.item() > 0.01:
            graph.replay()
        return static_z.clone()

    return solve


def make_solver__right_with_numbered_rounds(one_round, x):
    static_x, static_z = x.clone(), torch.zeros_like(x)
    with torch.inference_mode():
        one_round(static_z, static_x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        moved = one_round(static_z, static_x)

    def solve(x):
        static_x.copy_(x)
        static_z.fill_(0)
        for _ in range(1000):
            graph.replay()
            if moved.item() <= 0.01:
                break
        return static_z.clone()

    return solve


def make_solver__whole_loop(one_round, x):
    static_x, static_z = x.clone(), torch.zeros_like(x)
    one_round(static_z, static_x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        while one_round(static_z, static_x) > 0.01:
            pass

    def solve(x):
        static_x.copy_(x)
        graph.replay()
        return static_z.clone()

    return solve


def make_solver__captures_the_callers_x(one_round, x):
    static_z = torch.zeros_like(x)
    one_round(static_z, x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        moved = one_round(static_z, x)

    def solve(new):
        x.copy_(new)
        static_z.zero_()
        graph.replay()
        while moved > 0.01:
            graph.replay()
        return static_z.clone()

    return solve


def make_solver__captures_in_each_call(one_round, x):
    def solve(x):
        static_z = torch.zeros_like(x)
        one_round(static_z, x)
        static_z.zero_()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            moved = one_round(static_z, x)
        graph.replay()
        while moved > 0.01:
            graph.replay()
        return static_z

    return solve


def make_solver__eager(one_round, x):
    def solve(x):
        z = torch.zeros_like(x)
        while one_round(z, x) > 0.01:
            pass
        return z

    return solve


changed(
    make_solver,
    always_twenty_rounds={
        "static_x = x.clone()\n"
        "static_z = torch.zeros_like(x)":
            "static_x, static_z = (x.clone(), torch.zeros_like(x))",
        "static_moved = one_round(static_z, static_x)": "one_round(static_z, static_x)",
        "graph.replay()\n"
        "while static_moved > 0.01:":
            "for _ in range(20):",
    },
    z_not_set_to_zero={
        "static_x = x.clone()\n"
        "static_z = torch.zeros_like(x)":
            "static_x, static_z = (x.clone(), torch.zeros_like(x))",
        "static_z.zero_()": "",
    },
    x_not_copied={
        "static_x = x.clone()\n"
        "static_z = torch.zeros_like(x)":
            "static_x, static_z = (x.clone(), torch.zeros_like(x))",
        "static_x.copy_(x)": "",
        "return solve":
            "solve.keep = static_x\n"
            "return solve",
    },
    static_z_returned={
        "static_x = x.clone()\n"
        "static_z = torch.zeros_like(x)":
            "static_x, static_z = (x.clone(), torch.zeros_like(x))",
        "return static_z.clone()": "return static_z",
    },
    without_warm_up={
        "static_x = x.clone()\n"
        "static_z = torch.zeros_like(x)\n"
        "one_round(static_z, static_x)":
            "static_x, static_z = (x.clone(), torch.zeros_like(x))",
    },
    read_before_the_first_replay={
        "static_x = x.clone()\n"
        "static_z = torch.zeros_like(x)":
            "static_x, static_z = (x.clone(), torch.zeros_like(x))",
        "graph.replay()\n"
        "while static_moved > 0.01:":
            "while static_moved > 0.01:",
    },
    z_set_to_zero_in_the_graph={
        "static_x = x.clone()\n"
        "static_z = torch.zeros_like(x)":
            "static_x, static_z = (x.clone(), torch.zeros_like(x))",
        "static_moved = one_round(static_z, static_x)":
            "static_z.zero_()\n"
            "static_moved = one_round(static_z, static_x)",
        "static_z.zero_()": "",
    },
)
