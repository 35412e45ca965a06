"""The rules of preflight, and the fix for what each finds."""

FIXES = {
    "sync": "keep the value on the GPU; read it after the replay, as seldom as you can",
    "copy": "copy before the replay, into a tensor of the graph; from pinned memory, with non_blocking=True",
    "CPU work": "do it between the replays: in the graph it runs once, at capture",
    "CPU random numbers": "draw on the GPU (device=...): in the graph a CPU draw happens once, at capture",
    "seeding": "seed between the replays",
    "generator": "call graph.register_generator_state before the capture, and tell preflight: generators=[...]",
    "frozen number": "make it a GPU tensor and fill_ it between the replays: a graph keeps the number of its capture",
    "path": "use torch.where, or one graph for each path and the branch outside",
    "shape": "pad to a fixed size, or keep a graph for each of a few sizes",
    "moved tensor": "keep one tensor and write into it with copy_: a graph keeps the address of its capture",
    "optimizer": "give the optimizer capturable=True; if it has no such argument, take one that has",
    "hook": "do its CPU work elsewhere: a hook runs at capture and in no replay, and make_graphed_callables refuses it",
    "trainable buffer": "make it a Parameter: make_graphed_callables refuses a buffer that requires a gradient",
    "autocast cache": "enter autocast inside the step, or with cache_enabled=False: a cast kept outside is frozen",
    "kept graph": "detach it, or delete it before the capture: it ties gradients to the main stream (error 906)",
    "inputs": "give the graph inputs of the shape, dtype, device and requires_grad that it will really get",
    "output": "return a tensor: a graph returns the number of its capture",
    "stream": "call side.wait_stream(own) before the side stream's work, and own.wait_stream(side) after it",
    "capture": "ask python -m capturable explain",
    "replay": "compare it with eager line by line: the graph keeps something that eager changes",
}
NOTES = {"hook", "trainable buffer"}  # a capture of the whole step bears them
