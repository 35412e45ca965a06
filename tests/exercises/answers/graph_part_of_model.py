"""Answers to the exercises of *Graph part of a model*: wrong ones, and other right ones (`__right_`)."""


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


changed(
    graph_second,
    left_in_eval={"with torch.no_grad():": "net.eval()\n…"},
    dropout_left_in_eval={
        "with torch.no_grad():": "net[1][2].eval()\n…",
        "return net": "return net.train()",
    },
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


def graph_around__last_part_first(net, inputs):
    with torch.no_grad():
        hidden = net[1](net[0](inputs))
    samples = ((hidden.requires_grad_(),), (inputs,))
    net[2], net[0] = torch.cuda.make_graphed_callables((net[2], net[0]), samples)
    return net


def graph_around__whole_model(net, inputs):
    return torch.cuda.make_graphed_callables(net, (inputs,))


def graph_around__eager(net, inputs):
    return net


changed(
    graph_around,
    two_calls={
        "net[0], net[2] = torch.cuda.make_graphed_callables((net[0], net[2]), samples)":
            "net[0] = torch.cuda.make_graphed_callables(net[0], samples[0])\n"
            "net[2] = torch.cuda.make_graphed_callables(net[2], samples[1])",
    },
    sample_without_gradient={"hidden.requires_grad_()": "hidden"},
    one_part={
        "net[0], net[2] = torch.cuda.make_graphed_callables((net[0], net[2]), samples)":
            "net[2] = torch.cuda.make_graphed_callables(net[2], samples[1])",
    },
    sample_of_one_row={"hidden = net[1](net[0](inputs))": "hidden = net[0](inputs)[:1]"},
    no_warm_up={"(net[0], net[2]), samples": "(net[0], net[2]), samples, num_warmup_iters=0"},
)


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


def make_solver__captures_in_each_call(one_round, x):
    return lambda x: make_solver(one_round, x)(x)


def make_solver__eager(one_round, x):
    def solve(x):
        z = torch.zeros_like(x)
        while one_round(z, x) > 0.01:
            pass
        return z

    return solve


changed(
    make_solver,
    always_twenty_rounds={"graph.replay()\nwhile static_moved > 0.01:": "for _ in range(20):"},
    z_not_set_to_zero={"static_z.zero_()": ""},
    x_not_copied={"static_x.copy_(x)": "static_x.copy_(static_x)"},
    without_warm_up={"one_round(static_z, static_x)\ngraph =": "graph ="},
    read_before_the_first_replay={"graph.replay()\nwhile": "while"},
    z_set_to_zero_in_the_graph={
        "static_moved = one_round(static_z, static_x)": "static_z.zero_()\n…",
        "static_z.zero_()": "",
    },
    whole_loop={
        "static_moved = one_round(static_z, static_x)":
            "while one_round(static_z, static_x) > 0.01:\n    pass",
    },
)
