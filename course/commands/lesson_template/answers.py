"""Answers to the exercises of *Verb object*: wrong ones, and other right ones (`__right_`)."""


def make_scaler__right_by_hand(weight, sample):
    static_input, graph = sample.clone(), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        static_output = static_input * weight

    def scale(inputs):
        static_input.copy_(inputs)
        graph.replay()
        return static_output.clone()

    return scale


changed(
    make_scaler,
    eager={"replay(inputs).clone()": "inputs * weight"},
    nothing_copied={"replay(inputs)": "replay()"},
    kept_output={"replay(inputs).clone()": "replay(inputs)"},
)
changed(
    running_total,
    warm_up_counted={"unchanged(total)": "unchanged()"},
    nothing_copied={"replay(inputs)": "replay()"},
    eager={"replay(inputs).clone()": "total.add_(inputs).clone()"},
    right_zeroed={"unchanged(total)": "unchanged()", "return": "total.zero_()\nreturn"},
)
