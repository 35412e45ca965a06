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


def capture_scores__returns_the_static_output(model, sample):
    def score(x):
        return torch.where(x.sum(1, keepdim=True) >= 0, model(x) * 2.0, 0)

    with torch.no_grad():
        return capture_step(score, sample.clone())


def capture_scores__scores_all_rows(model, sample):
    with torch.no_grad():
        replay = capture_step(lambda x: model(x) * 2.0, sample.clone())
    return lambda x: replay(x).clone()


def capture_scores__selects_after_the_replay(model, sample):
    with torch.no_grad():
        replay = capture_step(lambda x: model(x) * 2.0, sample.clone())
    return lambda x: replay(x)[x.sum(1) >= 0].clone()


def capture_scores__runs_eagerly(model, sample):
    def predict(x):
        with torch.no_grad():
            return torch.where(x.sum(1, keepdim=True) >= 0, model(x) * 2.0, 0)

    return predict


def capture_scores__overwrites_the_sample(model, sample):
    def score(x):
        return torch.where(x.sum(1, keepdim=True) >= 0, model(x) * 2.0, 0)

    with torch.no_grad():
        replay = capture_step(score, sample)
    return lambda x: replay(x).clone()


changed(
    capture_scores,
    selects_rows={
        "positive = x.sum(1, keepdim=True) >= 0": "scores = model(x) * 2.0",
        "return torch.where(positive, model(x) * 2.0, 0)": "return scores[x.sum(1) >= 0]",
    },
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


def capture_average__keeps_the_momentum_on_the_cpu(sample):
    average = torch.zeros_like(sample)
    static_momentum = torch.tensor(0.5)
    replay = capture_step(lambda x: average.add_(static_momentum * (x - average)), sample.clone())
    average.zero_()

    def update(x, momentum):
        static_momentum.fill_(momentum)
        return replay(x).clone()

    return update


def capture_average__runs_eagerly(sample):
    average = torch.zeros_like(sample)

    def update(x, momentum):
        return average.add_(momentum * (x - average)).clone()

    return update


changed(
    capture_average__keeps_the_momentum_on_the_cpu,
    begins_after_the_warm_up={
        "tensor(0.5)": "tensor(0.5, device='cuda')",
        "average.zero_()": "",
    },
    returns_the_average_itself={
        "tensor(0.5)": "tensor(0.5, device='cuda')",
        "return replay(x).clone()": "return replay(x)",
    },
    overwrites_the_sample={
        "tensor(0.5)": "tensor(0.5, device='cuda')",
        "(lambda x: average.add_(static_momentum * (x - average)), sample.clone())":
            "(lambda x: average.add_(static_momentum * (x - average)), sample)",
    },
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
