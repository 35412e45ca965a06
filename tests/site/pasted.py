"""What people paste: fifteen tracebacks, logs and sentences, and what each should be told."""

MORE = (
    "\nSearch for `cudaErrorStreamCaptureUnsupported' in https://docs.nvidia.com/cuda/"
    "cuda-runtime-api/ for more information."
    "\nCUDA kernel errors might be asynchronously reported at some other API call, so the "
    "stacktrace below might be incorrect."
    "\nFor debugging consider passing CUDA_LAUNCH_BLOCKING=1"
    "\nCompile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.\n"
)
HEAD = 'Traceback (most recent call last):\n  File "/home/me/train.py", line 71, in <module>\n    '
CAPTURING = "torch.AcceleratorError: CUDA error: operation not permitted when stream is capturing"
LEGACY = (
    "torch.AcceleratorError: CUDA error: operation would make the legacy stream depend on a "
    "capturing blocking stream"
)
PASTED = [  # (text, the title that comes first, or None where nothing is known)
    (f"{HEAD}losses.append(loss.item())\n{CAPTURING}{MORE}", "A value read in a capture"),
    (f"{HEAD}if grad.isnan().any():\n{CAPTURING}{MORE}", "A branch on a tensor"),
    (f"{HEAD}torch.cuda.synchronize()\n{CAPTURING}{MORE}", "A synchronize in a capture"),
    (f"{HEAD}x[mask].sum().backward()\n{CAPTURING}{MORE}", "A shape that depends on the data"),
    (f"{HEAD}loss.backward()\n{LEGACY}{MORE}", "A gradient that remembers the default stream"),
    (f"{HEAD}print(loss)\n  File torch/_tensor.py, in __repr__\n{CAPTURING}", "A tensor printed"),
    (
        f"{HEAD}static.copy_(batch)\nRuntimeError: Cannot copy between CPU and CUDA tensors during "
        "CUDA graph capture unless the CPU tensor is pinned. Please use tensor.pin_memory() or "
        "allocate the tensor with pin_memory=True.",
        "A copy from ordinary memory",
    ),
    (
        "RuntimeError: Attempting CUDA graph capture of step() for an instance of Adam but "
        "param_groups' capturable is False.",
        "Adam without capturable",
    ),
    (
        "  with torch.cuda.graph(g):\nUserWarning: The CUDA Graph is empty. This usually means "
        "that the graph was attempted to be captured on wrong device or stream.",
        "A graph that is empty",
    ),
    (
        "RuntimeError: Attempt to increase offset for a CUDA generator not in capture mode.",
        "A generator that nobody announced",
    ),
    ("CUDA error: capturing stream has unjoined work", "A fork that is never joined"),
    (CAPTURING, "Error 900: the message names no cause"),
    (
        "graph.replay() gives the same output for every input batch",
        "A new tensor under the old name",
    ),
    (f"{HEAD}import pandas\nModuleNotFoundError: No module named 'pandas'", None),
    ("ValueError: too many values to unpack (expected 2)", None),
]
