"""Answers to the exercises of *Transformer Engine's graphs*: wrong ones, and other right ones (`__right_`)."""

import torch


def graph_autocast__restored_alone(layer, autocast, inputs):
    with unchanged(layer), autocast(layer):
        replay = capture_step(layer, inputs.clone())
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


changed(
    graph_autocast,
    around_the_replay={
        "with autocast(layer):\n    return layer(batch)": "return layer(batch)",
        "return replay(batch).clone()": "with autocast(layer):\n    …",
    },
    right_by_hand={
        "with unchanged(layer):\n"
        "    replay = capture_step(step, inputs.clone())": "return by_hand(layer, step, inputs)",
    },
)


changed(
    graph_scaled,
    state_stays={"layer.scale.copy_(scale)": "", "layer.history.copy_(history)": ""},
    new_tensors={
        "layer.scale.copy_(scale)": "layer.scale = scale",
        "layer.history.copy_(history)": "layer.history = history",
    },
    moved_by_the_cpu={
        "capture_step(step, inputs.clone())": "capture_step(layer, inputs.clone())",
        "return lambda batch: replay(batch).clone()":
            "def run(batch):\n"
            "    outputs = replay(batch).clone()\n"
            "    scale, history = layer.new_state()\n"
            "    layer.scale.copy_(scale)\n"
            "    layer.history.copy_(history)\n"
            "    return outputs\n"
            "return run",
    },
    moved_first={"outputs = layer(batch)": "", "return outputs": "return layer(batch)"},
    scale_alone={"layer.history.copy_(history)": ""},
    right_by_hand={
        "with unchanged(layer):\n"
        "    replay = capture_step(step, inputs.clone())": "return by_hand(layer, step, inputs)",
    },
)


def graph_microbatches__captures_each_call(layer, inputs):
    return lambda batch, is_first_microbatch: graph_microbatches(layer, batch)(
        batch, is_first_microbatch
    )


def graph_microbatches__right_in_two_replays(layer, inputs):
    with unchanged(layer):
        rounding = capture_step(lambda: layer(inputs, True))
        later = capture_step(partial(layer, is_first_microbatch=False), inputs.clone())

    def run(batch, is_first_microbatch):
        if is_first_microbatch:
            rounding()
        return later(batch).clone()

    return run


changed(
    graph_microbatches,
    one_graph_of_the_first={"first if is_first_microbatch else later": "first"},
    one_graph_of_a_later={"first if is_first_microbatch else later": "later"},
    first_in_eager={
        "replay = first if is_first_microbatch else later":
            "if is_first_microbatch:\n"
            "    return layer(batch, True)\n"
            "replay = later",
    },
)
