"""Answers to the exercises of *Verb object*: wrong ones, and other right ones (`__right_`)."""


def make_scaler__eager(weight, sample):
    return lambda inputs: inputs * weight


def make_scaler__nothing_copied(weight, sample):
    replay = capture_step(lambda inputs: inputs * weight, sample.clone())
    return lambda inputs: replay().clone()


def make_scaler__kept_output(weight, sample):
    return capture_step(lambda inputs: inputs * weight, sample.clone())


def make_scaler__right_by_hand(weight, sample):
    static_input, graph = sample.clone(), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        static_output = static_input * weight

    def scale(inputs):
        static_input.copy_(inputs)
        graph.replay()
        return static_output.clone()

    return scale


def running_total__warm_up_counted(sample):
    total = torch.zeros_like(sample)
    replay = capture_step(lambda inputs: total.add_(inputs), sample.clone())
    return lambda inputs: replay(inputs).clone()


def running_total__nothing_copied(sample):
    replay = running_total(sample)
    static = sample.clone()
    return lambda inputs: replay(static)


def running_total__eager(sample):
    total = torch.zeros_like(sample)
    return lambda inputs: total.add_(inputs).clone()


def running_total__right_zeroed(sample):
    total = torch.zeros_like(sample)
    replay = capture_step(lambda inputs: total.add_(inputs), sample.clone())
    total.zero_()
    return lambda inputs: replay(inputs).clone()


def steps_until_paid__rounded_down(capture_us, eager_us, graph_us):
    return int(capture_us / (eager_us - graph_us))


def steps_until_paid__replays_are_free(capture_us, eager_us, graph_us):
    return math.ceil(capture_us / eager_us)


def steps_until_paid__in_replays(capture_us, eager_us, graph_us):
    return math.ceil(capture_us / graph_us)
