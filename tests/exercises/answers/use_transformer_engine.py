"""Answers to the exercises of *Transformer Engine's graphs*: wrong ones, and other right ones (`__right_`)."""

import torch


def graph_autocast__restored_alone(layer, autocast, inputs):
    with unchanged(layer), autocast(layer):
        replay = capture_step(layer, inputs.clone())
    return lambda batch: replay(batch).clone()


def autocast_step(layer, autocast):
    def step(batch):
        with autocast(layer):
            return layer(batch)

    return step


def graph_autocast__around_the_replay(layer, autocast, inputs):
    with unchanged(layer):
        replay = capture_step(layer, inputs.clone())

    def run(batch):
        with autocast(layer):
            return replay(batch).clone()

    return run


def graph_autocast__not_cloned(layer, autocast, inputs):
    with unchanged(layer):
        return capture_step(autocast_step(layer, autocast), inputs.clone())


def graph_autocast__captured_on_the_sample(layer, autocast, inputs):
    with unchanged(layer):
        replay = capture_step(autocast_step(layer, autocast), inputs)
    return lambda batch: replay(batch).clone()


def by_hand(layer, step, inputs):
    static = inputs.clone()
    with unchanged(layer):
        step(static)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            outputs = step(static)

    def run(batch):
        static.copy_(batch)
        graph.replay()
        return outputs.clone()

    return run


def graph_autocast__right_by_hand(layer, autocast, inputs):
    return by_hand(layer, autocast_step(layer, autocast), inputs)


def move(layer):
    scale, history = layer.new_state()
    layer.scale.copy_(scale)
    layer.history.copy_(history)


def scaled_step(layer):
    def step(batch):
        outputs = layer(batch)
        move(layer)
        return outputs

    return step


def graph_scaled__state_stays(layer, inputs):
    with unchanged(layer):
        replay = capture_step(layer, inputs.clone())
    return lambda batch: replay(batch).clone()


def graph_scaled__new_tensors(layer, inputs):
    def step(batch):
        outputs = layer(batch)
        layer.scale, layer.history = layer.new_state()
        return outputs

    with unchanged(layer):
        replay = capture_step(step, inputs.clone())
    return lambda batch: replay(batch).clone()


def graph_scaled__moved_by_the_cpu(layer, inputs):
    with unchanged(layer):
        replay = capture_step(layer, inputs.clone())

    def run(batch):
        outputs = replay(batch).clone()
        move(layer)
        return outputs

    return run


def graph_scaled__trace_of_the_warm_up(layer, inputs):
    replay = capture_step(scaled_step(layer), inputs.clone())
    return lambda batch: replay(batch).clone()


def graph_scaled__moved_first(layer, inputs):
    def step(batch):
        move(layer)
        return layer(batch)

    with unchanged(layer):
        replay = capture_step(step, inputs.clone())
    return lambda batch: replay(batch).clone()


def graph_scaled__not_cloned(layer, inputs):
    with unchanged(layer):
        return capture_step(scaled_step(layer), inputs.clone())


def graph_scaled__right_by_hand(layer, inputs):
    return by_hand(layer, scaled_step(layer), inputs)


changed(
    graph_scaled__new_tensors,
    scale_alone={"scale, layer.history = layer.new_state()": "scale.copy_(layer.new_state()[0])"},
)


def graph_microbatches__one_graph_of_the_first(layer, inputs):
    with unchanged(layer):
        replay = capture_step(partial(layer, is_first_microbatch=True), inputs.clone())
    return lambda batch, is_first_microbatch: replay(batch).clone()


def graph_microbatches__one_graph_of_a_later(layer, inputs):
    replay = capture_step(partial(layer, is_first_microbatch=False), inputs.clone())
    return lambda batch, is_first_microbatch: replay(batch).clone()


def graph_microbatches__trace_of_the_warm_up(layer, inputs):
    replays = {
        flag: capture_step(partial(layer, is_first_microbatch=flag), inputs.clone())
        for flag in (True, False)
    }
    return lambda batch, is_first_microbatch: replays[is_first_microbatch](batch).clone()


def graph_microbatches__not_cloned(layer, inputs):
    with unchanged(layer):
        replays = {
            flag: capture_step(partial(layer, is_first_microbatch=flag), inputs.clone())
            for flag in (True, False)
        }
    return lambda batch, is_first_microbatch: replays[is_first_microbatch](batch)


def graph_microbatches__first_in_eager(layer, inputs):
    later = capture_step(partial(layer, is_first_microbatch=False), inputs.clone())

    def run(batch, is_first_microbatch):
        if is_first_microbatch:
            return layer(batch, True)
        return later(batch).clone()

    return run


def graph_microbatches__captures_each_call(layer, inputs):
    def run(batch, is_first_microbatch):
        with unchanged(layer):
            replay = capture_step(partial(layer, is_first_microbatch=is_first_microbatch), batch)
        return replay().clone()

    return run


def graph_microbatches__right_with_a_tensor(layer, inputs):
    flag = torch.zeros((), dtype=torch.bool, device="cuda")

    def step(batch):
        kept = layer.rounded.clone()
        layer(batch, True)
        layer.rounded.copy_(torch.where(flag, layer.rounded, kept))
        return layer(batch, False)

    with unchanged(layer):
        replay = capture_step(step, inputs.clone())

    def run(batch, is_first_microbatch):
        flag.fill_(is_first_microbatch)
        return replay(batch).clone()

    return run


def graph_microbatches__right_in_two_replays(layer, inputs):
    with unchanged(layer):
        rounding = capture_step(lambda: layer(inputs, True))
        later = capture_step(partial(layer, is_first_microbatch=False), inputs.clone())

    def run(batch, is_first_microbatch):
        if is_first_microbatch:
            rounding()
        return later(batch).clone()

    return run
