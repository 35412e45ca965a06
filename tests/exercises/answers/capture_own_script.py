"""Answers to the exercises of *Capture your own script*: wrong ones, and other right ones
(`__right_`).
"""


def graph_after_warm_up__eager(step):
    return step


changed(
    graph_after_warm_up,
    one_warm_up={
        "state['calls'] <= 3": "state['calls'] <= 1",
        "state['calls'] == 4": "state['calls'] == 2",
    },
    callers_tensors={"[tensor.clone() for tensor in batch]": "batch"},
    on_the_default_stream={"with torch.cuda.stream(side_stream):": "if True:"},
    capture_taken_for_a_step={"graph.replay()": "if state['calls'] > 4:\n    …"},
    names_bound_anew={"static.copy_(new)": "if state['calls'] < 3:\n    …"},
    captured_in_each_call={
        "state['calls'] == 4": "state['calls'] >= 4",
        "with torch.cuda.graph(graph):": "graph = torch.cuda.CUDAGraph()\n…",
    },
    right_empty_at_first={"[tensor.clone() for": "[torch.empty_like(tensor) for"},
)


changed(
    train_with_falling_rate,
    not_capturable={", capturable=True": ""},
    eager={"train = GraphedStep(step)": "train = step"},
    numbers={"group['lr'].copy_(rate)": "group['lr'] = float(rate)"},
    captured_anew={
        "train = GraphedStep(step)":
            "def train(*batch):\n"
            "    with unchanged(net):\n"
            "        return capture_step(step, *batch)()",
    },
    right_filled={"copy_(rate)": "fill_(rate.item())"},
    right_in_the_group={
        "rates[0].clone()": "torch.full((), 0.05, device='cuda')",
        "capturable=True": "capturable=True, foreach=False",
    },
)


def resume__loaded_inside(net, optimizer, step, batch, checkpoint):
    with unchanged(net, optimizer):
        net.load_state_dict(checkpoint["net"])
        optimizer.load_state_dict(checkpoint["optimizer"])
        replay = capture_step(step, *[tensor.clone() for tensor in batch])
    return lambda *batch: replay(*batch).clone()


def resume__right_first_steps_eager(net, optimizer, step, batch, checkpoint):
    net.load_state_dict(checkpoint["net"])
    optimizer.load_state_dict(checkpoint["optimizer"])
    return GraphedStep(step)


def resume__right_copied_in_place(net, optimizer, step, batch, checkpoint):
    replay = capture_step(step, *[tensor.clone() for tensor in batch])
    net.load_state_dict(checkpoint["net"])
    for number, parameter in enumerate(net.parameters()):
        saved = checkpoint["optimizer"]["state"][number]["momentum_buffer"]
        optimizer.state[parameter]["momentum_buffer"].copy_(saved)
    return lambda *batch: replay(*batch).clone()


changed(
    resume,
    eager={"replay(inputs, targets).clone()": "step(inputs, targets)"},
    callers_batch={"(tensor.clone() for tensor in batch)": "batch"},
)
