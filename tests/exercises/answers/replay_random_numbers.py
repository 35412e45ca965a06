"""Answers to the exercises of *Replay random numbers*: wrong ones, and other right ones (`__right_`)."""

from helpers.capture import unchanged

import random


def flip_graph__frozen_branch(images):
    def random_flip(images):
        return images.flip(-1) if random.random() < 0.5 else images.clone()

    replay = capture_step(random_flip, images.clone())
    return lambda new_images: replay(new_images).clone()


def flip_graph__all_or_none(images):
    def random_flip(images):
        flip = torch.rand((), device="cuda") < 0.5
        return torch.where(flip, images.flip(-1), images)

    replay = capture_step(random_flip, images.clone())
    return lambda new_images: replay(new_images).clone()


def draw_flips(images):
    flip = torch.rand(len(images), 1, 1, 1, device="cuda") < 0.5
    return torch.where(flip, images.flip(-1), images)


def flip_graph__not_cloned(images):
    return capture_step(draw_flips, images.clone())


def flip_graph__input_overwritten(images):
    replay = capture_step(draw_flips, images)
    replay(images.flip(0))
    return lambda new_images: replay(new_images).clone()


def flip_graph__input_not_copied(images):
    replay = capture_step(draw_flips, images.clone())
    return lambda new_images: replay().clone()


def flip_graph__eager(images):
    return draw_flips


def flip_graph__one_in_ten(images):
    def random_flip(images):
        flip = torch.rand(len(images), 1, 1, 1, device="cuda") < 0.1
        return torch.where(flip, images.flip(-1), images)

    replay = capture_step(random_flip, images.clone())
    return lambda new_images: replay(new_images).clone()


def flip_graph__mirrored_outside_the_graph(images):
    replay = capture_step(lambda: torch.rand(len(images), 1, 1, 1, device="cuda") < 0.5)
    return lambda new_images: torch.where(replay(), new_images.flip(-1), new_images)


def flip_graph__not_warmed_up(images):
    replay = capture_step(draw_flips, images.clone(), warmup=0)
    return lambda new_images: replay(new_images).clone()


def flip_graph__captured_in_each_call(images):
    return lambda new_images: capture_step(draw_flips, new_images.clone())().clone()


def flip_graph__right_with_the_helper(images):
    replay = capture_step(draw_flips, images.clone())
    return lambda new_images: replay(new_images).clone()


def flip_graph__right_in_inference_mode(images):
    with torch.inference_mode():
        replay = capture_step(draw_flips, images.clone())

    def flipped(new_images):
        with torch.inference_mode():
            return replay(new_images).clone()

    return flipped


def flip_graph__right_drawn_on_the_cpu_and_copied(images):
    def flip_where(images, flip):
        return torch.where(flip, images.flip(-1), images)

    static_flip = torch.zeros(len(images), 1, 1, 1, dtype=torch.bool, device="cuda")
    replay = capture_step(flip_where, images.clone(), static_flip)

    def flipped(new_images):
        flip = torch.rand(len(images), 1, 1, 1) < 0.5
        return replay(new_images, flip).clone()

    return flipped


changed(
    flip_graph,
    right_with_bernoulli={
        "rand(len(images), 1, 1, 1, device='cuda') < 0.5":
            "empty(len(images), 1, 1, 1, device='cuda').bernoulli_(0.5).bool()",
    },
)


def mixup_graph__lam_frozen(images):
    def mixup(images):
        lam = np.random.beta(1.0, 1.0)
        return lam * images + (1 - lam) * images.flip(0)

    replay = capture_step(mixup, images.clone())
    return lambda new_images: replay(new_images).clone()


def mix(images, lam):
    return lam * images + (1 - lam) * images.flip(0)


def mixup_graph__warm_up_drew(images):
    first_lam = torch.tensor(np.random.beta(1.0, 1.0), device="cuda")
    replay = capture_step(mix, images.clone(), first_lam)
    return lambda images: replay(images, torch.tensor(np.random.beta(1.0, 1.0))).clone()


def mixup_graph__copied_after_the_replay(images):
    static_lam = torch.ones((), device="cuda")
    replay = capture_step(mix, images.clone(), static_lam)

    def mixed(new_images):
        result = replay(new_images, static_lam).clone()
        static_lam.fill_(np.random.beta(1.0, 1.0))
        return result

    return mixed


def mixup_graph__another_distribution(images):
    replay = capture_step(mix, images.clone(), torch.ones((), device="cuda"))
    return lambda images: replay(images, torch.tensor(random.betavariate(1.0, 1.0))).clone()


def mixup_graph__not_cloned(images):
    replay = capture_step(mix, images.clone(), torch.ones((), device="cuda"))
    return lambda images: replay(images, torch.tensor(np.random.beta(1.0, 1.0)))


def mixup_graph__eager(images):
    return lambda images: mix(images, np.random.beta(1.0, 1.0))


def mixup_graph__outside_the_graph(images):
    replay = capture_step(torch.clone, images.clone())
    return lambda images: mix(replay(images), np.random.beta(1.0, 1.0))


def mixup_graph__not_warmed_up(images):
    replay = capture_step(mix, images.clone(), torch.ones((), device="cuda"), warmup=0)
    return lambda images: replay(images, torch.tensor(np.random.beta(1.0, 1.0))).clone()


def mixup_graph__captured_in_each_call(images):
    def mixed(new_images):
        lam = np.random.beta(1.0, 1.0)
        return capture_step(lambda: mix(new_images, lam))().clone()

    return mixed


def mixup_graph__right_with_the_helper(images):
    replay = capture_step(mix, images.clone(), torch.ones((), device="cuda"))
    return lambda images: replay(images, torch.tensor(np.random.beta(1.0, 1.0))).clone()


def mixup_graph__right_new_tensor_copied(images):
    static_lam = torch.ones((), device="cuda")
    replay = capture_step(mix, images.clone(), static_lam)

    def mixed(new_images):
        static_lam.copy_(torch.tensor(np.random.beta(1.0, 1.0), device="cuda"))
        return replay(new_images, static_lam).clone()

    return mixed


def mixup_graph__right_state_restored(images):
    state = np.random.get_state()
    first_lam = torch.tensor(np.random.beta(1.0, 1.0), device="cuda")
    replay = capture_step(mix, images.clone(), first_lam)
    np.random.set_state(state)
    return lambda images: replay(images, torch.tensor(np.random.beta(1.0, 1.0))).clone()


def registered(generator):
    """What capture_step must register: nothing from torch 2.15 on."""
    return [generator] if torch.__version__ < (2, 15) else []


def noise_graph__drawn_before(generator, shape):
    noise = torch.randn(shape, device="cuda", generator=generator)
    replay = capture_step(lambda: noise * 1)
    return lambda: replay().clone()


def noise_graph__default_generator(generator, shape):
    replay = capture_step(lambda: torch.randn(shape, device="cuda"), warmup=0)
    return lambda: replay().clone()


def noise_graph__warm_up_drew(generator, shape):
    def noise():
        return torch.randn(shape, device="cuda", generator=generator)

    replay = capture_step(noise, generators=registered(generator))
    return lambda: replay().clone()


def noise_graph__registered_late(generator, shape):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        graph.register_generator_state(generator)
        static_noise = torch.randn(shape, device="cuda", generator=generator)

    def draw():
        graph.replay()
        return static_noise.clone()

    return draw


def noise_graph__new_generator_of_the_same_seed(generator, shape):
    fresh = torch.Generator("cuda").manual_seed(generator.initial_seed())

    def noise():
        return torch.randn(shape, device="cuda", generator=fresh)

    replay = capture_step(noise, warmup=0, generators=registered(fresh))
    return lambda: replay().clone()


def noise_graph__new_generator_of_the_same_state(generator, shape):
    fresh = torch.Generator("cuda")
    fresh.set_state(generator.get_state())

    def noise():
        return torch.randn(shape, device="cuda", generator=fresh)

    replay = capture_step(noise, warmup=0, generators=registered(fresh))
    return lambda: replay().clone()


def noise_graph__new_generator_in_each_call(generator, shape):
    def draw():
        fresh = torch.Generator("cuda").manual_seed(generator.initial_seed())

        def noise():
            return torch.randn(shape, device="cuda", generator=fresh)

        return capture_step(noise, warmup=0, generators=registered(fresh))().clone()

    return draw


def noise_graph__not_cloned(generator, shape):
    def noise():
        return torch.randn(shape, device="cuda", generator=generator)

    return capture_step(noise, warmup=0, generators=registered(generator))


def noise_graph__not_warmed_up(generator, shape):
    graph = torch.cuda.CUDAGraph()
    graph.register_generator_state(generator)  # from torch 2.15 on: only a warning
    with torch.cuda.graph(graph):
        static_noise = torch.randn(shape, device="cuda", generator=generator)

    def draw():
        graph.replay()
        return static_noise.clone()

    return draw


def noise_graph__drawn_on_the_cpu(generator, shape):
    replay = capture_step(lambda: torch.randn(shape).cuda())
    return lambda: replay().clone()


def noise_graph__eager(generator, shape):
    return lambda: torch.randn(shape, device="cuda", generator=generator)


def noise_graph__right_in_place(generator, shape):
    noise, state = torch.empty(shape, device="cuda"), generator.get_state()

    def draw():
        return noise.normal_(generator=generator)

    replay = capture_step(draw, generators=registered(generator))
    generator.set_state(state)
    return lambda: replay().clone()


def noise_graph__right_unchanged(generator, shape):
    def noise():
        return torch.randn(shape, device="cuda", generator=generator)

    with unchanged(generators=[generator]):
        replay = capture_step(noise, generators=registered(generator))
    return lambda: replay().clone()


changed(
    noise_graph,
    right_warmed_up_by_another_operator={
        "if torch.__version__ < (2, 15):": "for own in registered(generator):",
        "(generator)": "(own)",
        "static_noise = torch.randn(shape, device='cuda', generator=generator)":
            "static_noise = torch.empty(shape, device='cuda').normal_(generator=generator)",
    },
)


def paired__not_rewound(replay, first, second):
    return replay(first).clone(), replay(second).clone()


def paired__seeded(replay, first, second):
    torch.manual_seed(0)
    first_result = replay(first).clone()
    torch.manual_seed(0)
    return first_result, replay(second).clone()


def paired__not_cloned(replay, first, second):
    state = torch.cuda.get_rng_state()
    first_result = replay(first)
    torch.cuda.set_rng_state(state)
    return first_result, replay(second)


def paired__a_new_seed_in_each_call(replay, first, second):
    seed = random.randint(0, 2**31)
    torch.cuda.manual_seed(seed)
    first_result = replay(first).clone()
    torch.cuda.manual_seed(seed)
    return first_result, replay(second).clone()


def paired__graphsafe(replay, first, second):
    generator = torch.cuda.default_generators[0]
    state = generator.graphsafe_get_state()
    first_result = replay(first).clone()
    generator.graphsafe_set_state(state)
    return first_result, replay(second).clone()


def paired__right_with_the_helper(replay, first, second):
    with unchanged():
        first_result = replay(first).clone()
    return first_result, replay(second).clone()


changed(
    paired,
    second_not_cloned={"(first_result, replay(second).clone())": "(first_result, replay(second))"},
)
