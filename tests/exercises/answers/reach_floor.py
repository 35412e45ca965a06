"""Answers to the exercises of *Shorten a step to its kernel time*: wrong ones, and other right ones (`__right_`)."""


def graph_per_buffer__copies_the_batch(step, net, buffers):
    inputs, targets = buffers[0]
    with unchanged(net):
        replay = capture_step(step, inputs.clone(), targets.clone())
    return lambda number: replay(*buffers[number]).clone()


def graph_per_buffer__captures_in_the_call(step, net, buffers):
    return lambda number: graph_per_buffer(step, net, buffers)(number)


changed(
    graph_per_buffer,
    eager={"replays[number]().clone()": "step(*buffers[number])"},
    reads_clones={"*buffer, pool=pool": "*[tensor.clone() for tensor in buffer], pool=pool"},
    only_the_first_buffer={"replays[number]()": "replays[0]()"},
    a_pool_each={", pool=pool": ""},
    right_buffers_in_the_step={"step, *buffer": "lambda buffer=buffer: step(*buffer)"},
)


changed(
    bf16_steps_in_one_graph,
    autocast_around_the_capture={
        "torch.autocast('cuda', dtype=torch.bfloat16)": "torch.enable_grad()",
        "(net, optimizer):": "(net, optimizer), torch.autocast('cuda', dtype=torch.bfloat16):",
    },
    in_float32={"dtype=torch.bfloat16": "enabled=False"},
    no_zero_grad={"optimizer.zero_grad()": ""},
)


changed(
    bf16_steps_in_one_graph__as_given,
    right_without_the_cache={
        "('cuda', dtype=torch.bfloat16):": "('cuda', dtype=torch.bfloat16, cache_enabled=False):",
    },
    right_cache_cleared={"losses.append(loss.detach())": "torch.clear_autocast_cache()\n…"},
)
