"""Answers to the exercises of *Replay random numbers*: wrong ones, and other right ones (`__right_`)."""

from helpers.capture import capture_step, unchanged
import random


def draw_flips(images):
    flip = torch.rand(len(images), 1, 1, 1, device="cuda") < 0.5
    return torch.where(flip, images.flip(-1), images)


def flip_graph__mirrored_outside_the_graph(images):
    replay = capture_step(lambda: torch.rand(len(images), 1, 1, 1, device="cuda") < 0.5)
    return lambda new_images: torch.where(replay(), new_images.flip(-1), new_images)


def flip_graph__captured_in_each_call(images):
    return lambda new_images: flip_graph(new_images)(new_images)


def flip_graph__right_with_the_helper(images):
    replay = capture_step(draw_flips, images.clone())
    return lambda new_images: replay(new_images).clone()


changed(
    flip_graph,
    frozen_branch={
        "torch.where(flip, static_images.flip(-1), static_images)":
            "static_images.flip(-1) if random.random() < 0.5 else static_images.clone()",
    },
    all_or_none={"len(images), 1, 1, 1": "()"},
    input_not_copied={"static_images.copy_(new_images)": "static_images.copy_(static_images)"},
    eager={"graph.replay()\nreturn static_result.clone()": "return random_flip()"},
    one_in_ten={"< 0.5": "< 0.1"},
    not_warmed_up={"random_flip()\ngraph =": "graph ="},
    right_with_bernoulli={
        "torch.rand(len(images), 1, 1, 1, device='cuda') < 0.5":
            "torch.empty(len(images), 1, 1, 1, device='cuda').bernoulli_(0.5).bool()",
    },
)


def mix(images, lam):
    return lam * images + (1 - lam) * images.flip(0)


def mixup_graph__outside_the_graph(images):
    replay = capture_step(torch.clone, images.clone())
    return lambda images: mix(replay(images), np.random.beta(1.0, 1.0))


def mixup_graph__captured_in_each_call(images):
    return lambda new_images: mixup_graph(new_images)(new_images)


def mixup_graph__right_with_the_helper(images):
    replay = capture_step(mix, images.clone(), torch.ones((), device="cuda"))
    return lambda images: replay(images, torch.tensor(np.random.beta(1.0, 1.0))).clone()


changed(
    mixup_graph,
    lam_frozen={"def mixup():": "…\n    static_lam = np.random.beta(1.0, 1.0)"},
    warm_up_drew={
        "torch.ones((), device='cuda')": "torch.tensor(np.random.beta(1.0, 1.0), device='cuda')",
    },
    copied_after_the_replay={
        "static_lam.fill_(np.random.beta(1.0, 1.0))": "",
        "return static_result.clone()": "static_lam.fill_(np.random.beta(1.0, 1.0))\n…",
    },
    another_distribution={"np.random.beta(1.0, 1.0)": "random.betavariate(1.0, 1.0)"},
    eager={"graph.replay()\nreturn static_result.clone()": "return mixup()"},
    not_warmed_up={"mixup()\ngraph =": "graph ="},
    right_new_tensor_copied={
        "static_lam.fill_(np.random.beta(1.0, 1.0))":
            "static_lam.copy_(torch.tensor(np.random.beta(1.0, 1.0), device='cuda'))",
    },
    right_state_restored={
        "static_lam = torch.ones((), device='cuda')":
            "state = np.random.get_state()\n"
            "static_lam = torch.tensor(np.random.beta(1.0, 1.0), device='cuda')\n"
            "np.random.set_state(state)",
    },
)


def paired__right_with_the_helper(replay, first, second):
    with unchanged():
        first_result = replay(first).clone()
    return first_result, replay(second).clone()


changed(
    paired,
    seeded={
        "state = torch.cuda.get_rng_state()": "torch.manual_seed(0)",
        "torch.cuda.set_rng_state(state)": "torch.manual_seed(0)",
    },
    not_cloned={
        "replay(first).clone()": "replay(first)",
        "replay(second).clone()": "replay(second)",
    },
    a_new_seed_in_each_call={
        "state = torch.cuda.get_rng_state()":
            "seed = random.randint(0, 2 ** 31)\ntorch.cuda.manual_seed(seed)",
        "torch.cuda.set_rng_state(state)": "torch.cuda.manual_seed(seed)",
    },
    graphsafe={
        "torch.cuda.get_rng_state()": "torch.cuda.default_generators[0].graphsafe_get_state()",
        ".cuda.set_rng_state(state)": ".cuda.default_generators[0].graphsafe_set_state(state)",
    },
)
