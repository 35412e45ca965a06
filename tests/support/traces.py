"""Events of a Kineto trace, as a test draws them; times are in us."""


def event(category, name, start, duration, **arguments):
    where = {"ts": start, "dur": duration, "tid": 1, "pid": 1}
    return {"ph": "X", "cat": category, "name": name, "args": arguments} | where


def step(number, start, duration):
    return event("user_annotation", f"ProfilerStep#{number}", start, duration)


def launch(start, correlation, name="cudaLaunchKernel", category="cuda_runtime"):
    return event(category, name, start, 1, correlation=correlation)


def kernel(start, duration, correlation, stream=7, device=0, category="kernel"):
    where = {"stream": stream, "device": device}
    return event(category, "k", start, duration, correlation=correlation, **where)
