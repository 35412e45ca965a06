"""The recipe that turns a step into one CUDA graph; a lesson builds it up line by line."""

import gc

import torch


def capture_step(step, *static_inputs, warmup=3):
    """Capture step(*static_inputs) in one CUDA graph and return replay(*inputs).

    static_inputs: CUDA tensors; the graph reads these very addresses on every replay.
    replay copies its inputs (same shapes and dtypes) into them, launches the graph and returns the
    static output, which the next replay overwrites: clone what you keep. replay() without inputs
    replays on what the static inputs hold. The warm-up runs step for real: restore weights and
    random state afterwards if they matter. replay.graph is the torch.cuda.CUDAGraph. Errors of the
    capture come through as torch raises them.
    Source: the "CUDA Graphs" section of docs.pytorch.org/docs/stable/notes/cuda.html.
    """
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(warmup):
            step(*static_inputs)
    torch.cuda.current_stream().wait_stream(side)

    gc.collect()  # a collection during the capture could free an older graph, which breaks this one
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        static_output = step(*static_inputs)

    def replay(*inputs):
        if inputs:
            for static, new in zip(static_inputs, inputs, strict=True):
                static.copy_(new)
        graph.replay()
        return static_output

    replay.graph, replay.step = graph, step  # a graph holds addresses only: keep alive what it uses
    return replay
