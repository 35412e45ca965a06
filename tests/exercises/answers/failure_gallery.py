"""Answers to the exercises of *Failure gallery*: wrong ones, and other right ones (`__right_`)."""


def capture_scores__right_by_hand(model, sample):
    static_x = sample.clone()
    graph = torch.cuda.CUDAGraph()

    def score():
        scores = model(static_x) * 2.0
        return scores.masked_fill(static_x.sum(1, keepdim=True) < 0, 0.0)

    with torch.no_grad():
        side_stream = torch.cuda.Stream()
        side_stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side_stream):
            score()
        torch.cuda.current_stream().wait_stream(side_stream)
        with torch.cuda.graph(graph):
            scores = score()

    def predict(x):
        static_x.copy_(x)
        graph.replay()
        return scores.clone()

    return predict


changed(
    capture_scores,
    returns_the_static_output={"replay(x).clone()": "replay(x)"},
    scores_all_rows={"torch.where(positive, model(x) * 2.0, 0)": "model(x) * 2.0"},
    selects_after_the_replay={
        "torch.where(positive, model(x) * 2.0, 0)": "model(x) * 2.0",
        "replay(x).clone()": "replay(x)[x.sum(1) >= 0].clone()",
    },
    runs_eagerly={"lambda x: replay(x).clone()": "torch.no_grad()(score)"},
    overwrites_the_sample={"sample.clone()": "sample"},
    selects_rows={"torch.where(positive, model(x) * 2.0, 0)": "(model(x) * 2.0)[x.sum(1) >= 0]"},
)


def capture_average__right_with_two_inputs(sample):
    average = torch.zeros_like(sample)

    def step(x, momentum):
        average.lerp_(x, momentum)
        return average

    replay = capture_step(step, sample.clone(), torch.tensor(0.5, device="cuda"))
    average.zero_()

    def update(x, momentum):
        return replay(x, torch.full((), momentum, device="cuda")).clone()

    return update


changed(
    capture_average,
    keeps_the_momentum_on_the_cpu={"torch.tensor(0.0, device='cuda')": "torch.tensor(0.5)"},
    begins_after_the_warm_up={
        "torch.tensor(0.0": "torch.tensor(0.5",
        "average.zero_()": "",
    },
    runs_eagerly={"replay(x).clone()": "step(x).clone()"},
    returns_the_average_itself={"replay(x).clone()": "replay(x)"},
    overwrites_the_sample={"sample.clone()": "sample"},
)


def exhibit_of__the_first_with_that_message(report):
    headings = {
        1: "torch.tensor during capture",
        4: "Legacy default stream in a capture, error 906",
    }
    return headings.get(report) or exhibit_of(report)


def exhibit_of__a_random_number(report):
    return "Frozen CPU random number" if report == 2 else exhibit_of(report)


def exhibit_of__an_input_not_copied(report):
    return "Rebound static input" if report == 3 else exhibit_of(report)


def exhibit_of__a_batch_that_is_too_small(report):
    return "Input shape mismatch" if report == 5 else exhibit_of(report)
