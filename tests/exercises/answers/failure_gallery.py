"""Answers to the exercises of *Failure gallery*: wrong ones, and other right ones (`__right_`)."""


changed(
    capture_scores,
    scores_all_rows={"torch.where(positive, model(x) * 2.0, 0)": "model(x) * 2.0"},
    selects_after_the_replay={
        "torch.where(positive, model(x) * 2.0, 0)": "model(x) * 2.0",
        "replay(x).clone()": "replay(x)[x.sum(1) >= 0].clone()",
    },
    runs_eagerly={"lambda x: replay(x).clone()": "torch.no_grad()(score)"},
    selects_rows={"torch.where(positive, model(x) * 2.0, 0)": "(model(x) * 2.0)[x.sum(1) >= 0]"},
    right_masked={
        "torch.where(positive, model(x) * 2.0, 0)": "(model(x) * 2.0).masked_fill(~positive, 0.0)",
    },
)


changed(
    capture_average,
    keeps_the_momentum_on_the_cpu={"torch.tensor(0.0, device='cuda')": "torch.tensor(0.5)"},
    begins_after_the_warm_up={"torch.tensor(0.0": "torch.tensor(0.5", "average.zero_()": ""},
    runs_eagerly={"replay(x).clone()": "step(x).clone()"},
    right_lerp={"add_(static_momentum * (x - average))": "lerp_(x, static_momentum)"},
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
