"""Answers to the exercises of *Start here*: wrong ones, and other right ones (`__right_`)."""


def time_step__right_by_difference(step, count):
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(count):
        step()
    host_us = 1e6 * (time.perf_counter() - start) / count
    torch.cuda.synchronize()
    return host_us, 1e6 * (time.perf_counter() - start) / count


changed(
    time_step__right_by_difference,
    earlier_work_counted={"torch.cuda.synchronize()\nstart": "start"},
    read_before_the_wait={"torch.cuda.synchronize()\nreturn": "return"},
    waits_for_each_step={"step()": "step(), torch.cuda.synchronize()"},
    one_step_more={"range(count)": "range(count + 1)"},
    times_added={"return (host_us, ": "return (host_us + "},
)


def make_replay__without_the_graph(function, x):
    def replay(new_x):
        return function(new_x).clone()

    return replay


changed(
    make_replay,
    right_written_by_index={"static_x.copy_(new_x)": "static_x[:] = new_x"},
)


changed(
    graphed,
    eager={"return replay": "return function"},
    no_copy={"static_x.copy_(x)": ""},
    second_not_copied={"static_y.copy_(y)": ""},
    no_warm_up={
        "function(static_x, static_y)\ngraph = torch.cuda.CUDAGraph()":
            "graph = torch.cuda.CUDAGraph()",
    },
    right_copied={"x.clone()": "torch.empty_like(x).copy_(x)"},
)
