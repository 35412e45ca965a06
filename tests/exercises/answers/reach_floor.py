"""Answers to the exercises of *Shorten a step to its kernel time*: wrong ones, and other right ones (`__right_`)."""


def graph_per_buffer__copies_the_batch(step, net, buffers):
    inputs, targets = buffers[0]
    with unchanged(net):
        replay = capture_step(step, inputs.clone(), targets.clone())
    return lambda number: replay(*buffers[number]).clone()


def graph_per_buffer__captures_in_the_call(step, net, buffers):
    return lambda number: graph_per_buffer(step, net, buffers)(number)


def graph_per_buffer__right_by_hand(step, net, buffers):
    weights = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    side_stream = torch.cuda.Stream()
    side_stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side_stream):
        for _ in range(3):
            step(*buffers[0])
    torch.cuda.current_stream().wait_stream(side_stream)

    graphs, losses = [], []
    for buffer in buffers:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=graphs[0].pool() if graphs else None):
            losses.append(step(*buffer))
        graphs.append(graph)
    net.load_state_dict(weights)

    def train(number):
        graphs[number].replay()
        return losses[number].clone()

    return train


changed(
    graph_per_buffer,
    eager={"replays[number]().clone()": "step(*buffers[number])"},
    reads_clones={"*buffer, pool=pool": "*[tensor.clone() for tensor in buffer], pool=pool"},
    only_the_first_buffer={"replays[number]()": "replays[0]()"},
    a_pool_each={", pool=pool": ""},
    warm_up_trained={"unchanged(net)": "unchanged()"},
    losses_not_cloned={"replays[number]().clone()": "replays[number]()"},
)


changed(
    bf16_steps_in_one_graph,
    autocast_around_the_capture={
        "torch.autocast('cuda', dtype=torch.bfloat16)": "torch.enable_grad()",
        "(net, optimizer):": "(net, optimizer), torch.autocast('cuda', dtype=torch.bfloat16):",
    },
    in_float32={"dtype=torch.bfloat16": "enabled=False"},
    warm_up_trained={"unchanged(net, optimizer)": "unchanged()"},
    losses_not_cloned={"replay(*stacks).clone()": "replay(*stacks)"},
    no_zero_grad={"optimizer.zero_grad()": ""},
)


changed(
    bf16_steps_in_one_graph__as_given,
    right_without_the_cache={
        "('cuda', dtype=torch.bfloat16):": "('cuda', dtype=torch.bfloat16, cache_enabled=False):",
    },
    right_cache_cleared={"losses.append(loss.detach())": "torch.clear_autocast_cache()\n…"},
)
