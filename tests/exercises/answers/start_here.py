"""Answers to the exercises of *Start here*: wrong ones, and other right ones (`__right_`)."""


def most_speed_up__upside_down(busy_us, step_us):
    return busy_us / step_us


def most_speed_up__over_the_idle_time(busy_us, step_us):
    return step_us / (step_us - busy_us)


def most_speed_up__what_is_saved(busy_us, step_us):
    return step_us / busy_us - 1


def steps_until_paid__rounded(capture_us, eager_us, graph_us):
    return round(capture_us / (eager_us - graph_us))


def steps_until_paid__rounded_down(capture_us, eager_us, graph_us):
    return capture_us // (eager_us - graph_us)


def steps_until_paid__always_one_more(capture_us, eager_us, graph_us):
    return int(capture_us / (eager_us - graph_us)) + 1


def steps_until_paid__not_whole(capture_us, eager_us, graph_us):
    return capture_us / (eager_us - graph_us)


def steps_until_paid__nothing_saved(capture_us, eager_us, graph_us):
    return math.ceil(capture_us / eager_us)


def make_replay__without_the_graph(function, x):
    def replay(new_x):
        return function(new_x).clone()

    return replay


changed(
    make_replay,
    copy_alone={"return static_result.clone()": "return static_result"},
    right_written_by_index={"static_x.copy_(new_x)": "static_x[:] = new_x"},
)


def graphed__on_the_callers_x(function, x):
    function(x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        static_result = function(x)

    def replay(new_x):
        x.copy_(new_x)
        graph.replay()
        return static_result.clone()

    return replay


def graphed__eager(function, x):
    return function


changed(
    graphed,
    not_cloned={"return static_result.clone()": "return static_result"},
    no_copy={"static_x.copy_(x)": ""},
    no_warm_up={
        "function(static_x)\n"
        "graph = torch.cuda.CUDAGraph()":
            "graph = torch.cuda.CUDAGraph()",
    },
    right_with_a_side_stream={
        "function(static_x)\n"
        "graph = torch.cuda.CUDAGraph()":
            "side_stream = torch.cuda.Stream()\n"
            "side_stream.wait_stream(torch.cuda.current_stream())\n"
            "with torch.cuda.stream(side_stream):\n"
            "    function(static_x)\n"
            "torch.cuda.current_stream().wait_stream(side_stream)\n"
            "graph = torch.cuda.CUDAGraph()",
    },
)
