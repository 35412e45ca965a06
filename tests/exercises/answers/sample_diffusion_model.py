"""Answers to the exercises of *Sample a diffusion model*: wrong ones, and other right ones
(`__right_`).
"""


def euler_step(model, x, sigma, next_sigma, guidance):
    def step():
        velocity = model(x, sigma, guidance)
        x.add_((next_sigma - sigma) * velocity)
        return x

    return step


def scalars(count):
    return [torch.zeros((), device="cuda") for _ in range(count)]


def graph_sampler__levels_as_numbers(model, noise):
    x = noise.clone()
    (guidance,) = scalars(1)
    levels = [1.0, 0.5]

    def step():
        sigma, next_sigma = levels
        velocity = model(x, sigma, guidance)
        return x.add_((next_sigma - sigma) * velocity)

    replay = capture_step(step)

    def sample(noise, scale, num_steps):
        x.copy_(noise)
        guidance.fill_(scale)
        for i in range(num_steps):
            levels[:] = [1 - i / num_steps, 1 - (i + 1) / num_steps]
            replay()
        return x.clone()

    return sample


def graph_sampler__guidance_as_a_number(model, noise):
    x = noise.clone()
    sigma, next_sigma = scalars(2)
    replay = capture_step(euler_step(model, x, sigma, next_sigma, 1.0))

    def sample(noise, scale, num_steps):
        x.copy_(noise)
        for i in range(num_steps):
            sigma.fill_(1 - i / num_steps)
            next_sigma.fill_(1 - (i + 1) / num_steps)
            replay()
        return x.clone()

    return sample


def graph_sampler__level_not_written(model, noise):
    x = noise.clone()
    change, guidance = scalars(2)
    sigma = torch.ones((), device="cuda")
    replay = capture_step(lambda: x.add_(change * model(x, sigma, guidance)))

    def sample(noise, scale, num_steps):
        x.copy_(noise)
        guidance.fill_(scale)
        for _ in range(num_steps):
            change.fill_(-1 / num_steps)
            replay()
        return x.clone()

    return sample


def whole_loop(model, noise, num_steps):
    x = noise.clone()
    (guidance,) = scalars(1)
    levels = torch.linspace(1, 0, num_steps + 1, device="cuda")

    def loop():
        for i in range(num_steps):
            x.add_((levels[i + 1] - levels[i]) * model(x, levels[i], guidance))
        return x

    return x, guidance, capture_step(loop)


def graph_sampler__all_steps_in_the_graph(model, noise):
    x, guidance, replay = whole_loop(model, noise, 4)

    def sample(noise, scale, num_steps):
        x.copy_(noise)
        guidance.fill_(scale)
        return replay().clone()

    return sample


def graph_sampler__a_graph_for_each_number(model, noise):
    loops = {}

    def sample(noise, scale, num_steps):
        if num_steps not in loops:
            loops[num_steps] = whole_loop(model, noise, num_steps)
        x, guidance, replay = loops[num_steps]
        x.copy_(noise)
        guidance.fill_(scale)
        return replay().clone()

    return sample


def sampler(model, noise, begin=lambda x, noise: x.copy_(noise), end=torch.clone, static=None):
    x = noise.clone() if static is None else static
    sigma, next_sigma, guidance = scalars(3)
    replay = capture_step(euler_step(model, x, sigma, next_sigma, guidance))

    def sample(noise, scale, num_steps):
        begin(x, noise)
        guidance.fill_(scale)
        for i in range(num_steps):
            sigma.fill_(1 - i / num_steps)
            next_sigma.fill_(1 - (i + 1) / num_steps)
            replay()
        return end(x)

    return sample


def graph_sampler__goes_on(model, noise):
    first = noise.clone()
    x = noise.clone()
    made = sampler(model, first, lambda x, noise: None, static=x)
    x.copy_(first)
    return made


def graph_sampler__the_first_noise(model, noise):
    first = noise.clone()
    return sampler(model, noise, lambda x, noise: x.copy_(first))


def graph_sampler__kept_output(model, noise):
    return sampler(model, noise, end=lambda x: x)


def graph_sampler__changes_the_noise(model, noise):
    return sampler(model, noise, static=noise)


def graph_sampler__eager(model, noise):
    def sample(noise, scale, num_steps):
        x = noise.clone()
        for i in range(num_steps):
            x = x - model(x, 1 - i / num_steps, scale) / num_steps
        return x

    return sample


def graph_sampler__right_index_of_one_element(model, noise):
    x = noise.clone()
    (guidance,) = scalars(1)
    levels = torch.linspace(1, 0, 101, device="cuda")
    i = torch.zeros(1, dtype=torch.long, device="cuda")

    def step():
        sigma = levels[i]
        x.add_((levels[i + 1] - sigma) * model(x, sigma, guidance))
        i.add_(1)
        return x

    replay = capture_step(step)

    def sample(noise, scale, num_steps):
        x.copy_(noise)
        guidance.fill_(scale)
        levels[: num_steps + 1] = torch.linspace(1, 0, num_steps + 1, device="cuda")
        i.zero_()
        for _ in range(num_steps):
            replay()
        return x.clone()

    return sample


def graph_sampler__right_update_outside(model, noise):
    sigma, guidance = scalars(2)
    replay = capture_step(model, noise.clone(), sigma, guidance)

    def sample(noise, scale, num_steps):
        x = noise.clone()
        scale = torch.tensor(scale, device="cuda")
        for i in range(num_steps):
            level = torch.full((), 1 - i / num_steps, device="cuda")
            x -= replay(x, level, scale) / num_steps
        return x

    return sample


changed(
    graph_sampler,
    size_of_steps_frozen={
        "sigma = torch.zeros((), device='cuda')\n"
        "next_sigma = torch.zeros((), device='cuda')\n"
        "guidance = torch.zeros((), device='cuda')":
            "sigma, guidance = scalars(2)",
        "x.add_((next_sigma - sigma) * model(x, sigma, guidance))":
            "return x.sub_(model(x, sigma, guidance) / 50)",
        "next_sigma.fill_(1 - (i + 1) / num_steps)": "",
    },
)


changed(
    graph_sampler__right_index_of_one_element,
    index_without_a_dimension={
        "0, 101, device": "0, 51, device",
        "i = torch.zeros(1, dtype=torch.long, device='cuda')":
            "i = torch.zeros((), dtype=torch.long, device='cuda')",
        "x.add_((levels[i + 1] - sigma) * model(x, sigma, guidance))":
            "next_sigma = levels[i + 1]\n"
            "x.add_((next_sigma - sigma) * model(x, sigma, guidance))",
    },
)


def graph_pipeline__only_the_level_repaired(model, scheduler, noise):
    x = noise.clone()
    (sigma,) = scalars(1)
    replay = capture_step(lambda: x.copy_(scheduler.step(model(x, sigma), x)))

    def pipeline(noise, num_steps):
        scheduler.set_timesteps(num_steps)
        x.copy_(noise)
        for i in range(num_steps):
            sigma.fill_(scheduler.sigmas[i].item())
            replay()
        return x.clone()

    return pipeline


def graph_pipeline__level_of_the_next_step(model, scheduler, noise):
    static_x = noise.clone()
    sigma = torch.zeros((), device="cuda")
    replay = capture_step(model, static_x, sigma)

    def pipeline(noise, num_steps):
        scheduler.set_timesteps(num_steps)
        x = noise.clone()
        for i in range(num_steps):
            sigma.copy_(scheduler.sigmas[i + 1])
            static_x.copy_(x)
            x = scheduler.step(replay(), x)
        return x

    return pipeline


def graph_pipeline__steps_not_set(model, scheduler, noise):
    replay = capture_step(model, noise.clone(), torch.zeros((), device="cuda"))

    def pipeline(noise, num_steps):
        x = noise.clone()
        scheduler.step_index = 0
        for _ in range(num_steps):
            sigma = scheduler.sigmas[scheduler.step_index]
            x = scheduler.step(replay(x, sigma), x)
        return x

    return pipeline


def graph_pipeline__kept_output(model, scheduler, noise):
    x = noise.clone()
    sigma = torch.zeros((), device="cuda")
    replay = capture_step(model, x, sigma)

    def pipeline(noise, num_steps):
        scheduler.set_timesteps(num_steps)
        x.copy_(noise)
        for i in range(num_steps):
            sigma.copy_(scheduler.sigmas[i])
            x.copy_(scheduler.step(replay(), x))
        return x

    return pipeline


def graph_pipeline__eager(model, scheduler, noise):
    def pipeline(noise, num_steps):
        scheduler.set_timesteps(num_steps)
        x = noise.clone()
        for i in range(num_steps):
            x = scheduler.step(model(x, scheduler.sigmas[i].cuda()), x)
        return x

    return pipeline


def graph_pipeline__changes_the_noise(model, scheduler, noise):
    replay = capture_step(model, noise, torch.zeros((), device="cuda"))

    def pipeline(noise, num_steps):
        scheduler.set_timesteps(num_steps)
        x = noise
        for i in range(num_steps):
            x = scheduler.step(replay(x, scheduler.sigmas[i]), x)
        return x

    return pipeline


def graph_pipeline__right_own_table(model, scheduler, noise):
    x = noise.clone()
    sigma, next_sigma = scalars(2)

    def step():
        return x.add_((next_sigma - sigma) * model(x, sigma))

    replay = capture_step(step)

    def pipeline(noise, num_steps):
        scheduler.set_timesteps(num_steps)
        levels = scheduler.sigmas.cuda()
        x.copy_(noise)
        for i in range(num_steps):
            sigma.copy_(levels[i])
            next_sigma.copy_(levels[i + 1])
            replay()
        return x.clone()

    return pipeline


changed(
    graph_pipeline__as_given,
    table_moved_to_the_gpu={
        "def step():":
            "scheduler.sigmas = scheduler.sigmas.cuda()\n"
            "def step():",
        "x.copy_(scheduler.step(model(x, sigma), x))":
            "return x.copy_(scheduler.step(model(x, sigma), x))",
        "x.copy_(noise)":
            "scheduler.sigmas = scheduler.sigmas.cuda()\n"
            "x.copy_(noise)",
    },
    counted_on_the_gpu={
        "def step():":
            "scheduler.sigmas = scheduler.sigmas.cuda()\n"
            "scheduler.step_index = torch.zeros((), dtype=torch.long, device='cuda')\n"
            "def step():",
        "x.copy_(scheduler.step(model(x, sigma), x))":
            "return x.copy_(scheduler.step(model(x, sigma), x))",
        "scheduler.set_timesteps(num_steps)": "",
    },
)


changed(
    graph_pipeline__level_of_the_next_step,
    level_not_written={
        "sigma = torch.zeros((), device='cuda')": "sigma = torch.ones((), device='cuda')",
        "sigma.copy_(scheduler.sigmas[i + 1])": "sigma = scheduler.sigmas[i].cuda()",
    },
)


def noise_of(generators, size):
    return torch.stack([torch.randn(size, device="cuda", generator=one) for one in generators])


def to_register(generators):
    return generators if torch.__version__ < (2, 15) else []


def seeded(denoise, num_images, size, num_steps):
    generators = [torch.Generator("cuda") for _ in range(num_images)]

    def loop():
        x = noise_of(generators, size)
        for _ in range(num_steps):
            x = denoise(x, noise_of(generators, size))
        return x

    return generators, capture_step(loop, generators=to_register(generators))


def graph_seeded_sampler__sum_of_seeds(denoise, num_images, size, num_steps):
    generators, replay = seeded(denoise, num_images, size, num_steps)

    def sample(seeds):
        for generator in generators:
            generator.manual_seed(sum(seeds))
        return replay().clone()

    return sample


def graph_seeded_sampler__noise_once(denoise, num_images, size, num_steps):
    generators = [torch.Generator("cuda") for _ in range(num_images)]

    def loop():
        x = noise_of(generators, size)
        noise = noise_of(generators, size)
        for _ in range(num_steps):
            x = denoise(x, noise)
        return x

    replay = capture_step(loop, generators=to_register(generators))

    def sample(seeds):
        for generator, seed in zip(generators, seeds, strict=True):
            generator.manual_seed(seed)
        return replay().clone()

    return sample


def graph_seeded_sampler__drawn_before_the_capture(denoise, num_images, size, num_steps):
    generators = [torch.Generator("cuda").manual_seed(seed) for seed in range(num_images)]
    noises = [noise_of(generators, size) for _ in range(num_steps + 1)]

    def loop():
        x = noises[0]
        for noise in noises[1:]:
            x = denoise(x, noise)
        return x

    replay = capture_step(loop)
    return lambda seeds: replay().clone()


def graph_seeded_sampler__kept_output(denoise, num_images, size, num_steps):
    generators, replay = seeded(denoise, num_images, size, num_steps)

    def sample(seeds):
        for generator, seed in zip(generators, seeds, strict=True):
            generator.manual_seed(seed)
        return replay()

    return sample


def graph_seeded_sampler__captured_in_each_call(denoise, num_images, size, num_steps):
    def sample(seeds):
        generators, replay = seeded(denoise, num_images, size, num_steps)
        for generator, seed in zip(generators, seeds, strict=True):
            generator.manual_seed(seed)
        return replay().clone()

    return sample


def graph_seeded_sampler__eager(denoise, num_images, size, num_steps):
    def sample(seeds):
        generators = [torch.Generator("cuda").manual_seed(seed) for seed in seeds]
        x = noise_of(generators, size)
        for _ in range(num_steps):
            x = denoise(x, noise_of(generators, size))
        return x

    return sample


def graph_seeded_sampler__right_drawn_outside(denoise, num_images, size, num_steps):
    noises = torch.zeros(num_steps + 1, num_images, size, device="cuda")

    def loop():
        x = noises[0]
        for noise in noises[1:]:
            x = denoise(x, noise)
        return x

    replay = capture_step(loop)

    def sample(seeds):
        for number, seed in enumerate(seeds):
            generator = torch.Generator("cuda").manual_seed(seed)
            for noise in noises:
                noise[number].normal_(generator=generator)
        return replay().clone()

    return sample


def graph_late_guidance__never(guided, plain, noise):
    return late(guided, plain, noise, lambda level, cutoff: False)


def graph_late_guidance__both_computed(guided, plain, noise):
    x = noise.clone()
    sigma, next_sigma, end = scalars(3)

    def step():
        velocity = torch.where(sigma > end, guided(x, sigma), plain(x, sigma))
        return x.add_((next_sigma - sigma) * velocity)

    replay = capture_step(step)

    def sample(noise, sigmas, cutoff):
        x.copy_(noise)
        end.fill_(cutoff)
        for level, next_level in zip(sigmas, sigmas[1:]):
            sigma.fill_(level)
            next_sigma.fill_(next_level)
            replay()
        return x.clone()

    return sample


def graph_late_guidance__branch_on_a_tensor(guided, plain, noise):
    x = noise.clone()
    sigma, next_sigma, end = scalars(3)

    def step():
        velocity = guided(x, sigma) if sigma > end else plain(x, sigma)
        return x.add_((next_sigma - sigma) * velocity)

    replay = capture_step(step)
    return lambda noise, sigmas, cutoff: replay().clone()


def late(guided, plain, noise, is_guided=lambda level, cutoff: level > cutoff, end=torch.clone):
    x = noise.clone()
    sigma, next_sigma = scalars(2)
    replays = [
        capture_step(lambda: x.add_((next_sigma - sigma) * plain(x, sigma))),
        capture_step(lambda: x.add_((next_sigma - sigma) * guided(x, sigma))),
    ]

    def sample(noise, sigmas, cutoff):
        x.copy_(noise)
        for level, next_level in zip(sigmas, sigmas[1:]):
            sigma.fill_(level)
            next_sigma.fill_(next_level)
            replays[is_guided(level, cutoff)]()
        return end(x)

    return sample


def graph_late_guidance__at_the_cutoff_too(guided, plain, noise):
    return late(guided, plain, noise, lambda level, cutoff: level >= cutoff)


def graph_late_guidance__kept_output(guided, plain, noise):
    return late(guided, plain, noise, end=lambda x: x)


def graph_late_guidance__always(guided, plain, noise):
    return late(guided, plain, noise, lambda level, cutoff: True)


def graph_late_guidance__each_its_own_pictures(guided, plain, noise):
    with_guidance, without = noise.clone(), noise.clone()
    sigma, next_sigma = scalars(2)
    guided_replay = capture_step(
        lambda: with_guidance.add_((next_sigma - sigma) * guided(with_guidance, sigma))
    )
    plain_replay = capture_step(lambda: without.add_((next_sigma - sigma) * plain(without, sigma)))

    def sample(noise, sigmas, cutoff):
        with_guidance.copy_(noise)
        without.copy_(noise)
        for level, next_level in zip(sigmas, sigmas[1:]):
            sigma.fill_(level)
            next_sigma.fill_(next_level)
            x = guided_replay() if level > cutoff else plain_replay()
        return x.clone()

    return sample


def graph_late_guidance__plain_steps_eager(guided, plain, noise):
    x = noise.clone()
    sigma, next_sigma = scalars(2)
    replay = capture_step(lambda: x.add_((next_sigma - sigma) * guided(x, sigma)))

    def sample(noise, sigmas, cutoff):
        x.copy_(noise)
        for level, next_level in zip(sigmas, sigmas[1:]):
            sigma.fill_(level)
            next_sigma.fill_(next_level)
            if level > cutoff:
                replay()
            else:
                x.add_((next_sigma - sigma) * plain(x, sigma))
        return x.clone()

    return sample


def graph_late_guidance__changes_the_noise(guided, plain, noise):
    sigma, next_sigma = scalars(2)
    capture_step(lambda: noise.add_((next_sigma + 1 - sigma) * guided(noise, sigma)))
    return late(guided, plain, noise)


def graph_late_guidance__levels_as_numbers(guided, plain, noise):
    x = noise.clone()
    levels = [1.0, 0.5]

    def step(velocity):
        return x.add_((levels[1] - levels[0]) * velocity(x, levels[0]))

    replays = [capture_step(lambda: step(plain)), capture_step(lambda: step(guided))]

    def sample(noise, sigmas, cutoff):
        x.copy_(noise)
        for levels[:] in zip(sigmas, sigmas[1:]):
            replays[levels[0] > cutoff]()
        return x.clone()

    return sample


def graph_late_guidance__right_velocities_alone(guided, plain, noise):
    x = noise.clone()
    (sigma,) = scalars(1)
    guided_replay = capture_step(guided, x, sigma)
    plain_replay = capture_step(plain, x, sigma)

    def sample(noise, sigmas, cutoff):
        x.copy_(noise)
        for level, next_level in zip(sigmas, sigmas[1:]):
            sigma.fill_(level)
            velocity = guided_replay() if level > cutoff else plain_replay()
            x.add_(velocity, alpha=next_level - level)
        return x.clone()

    return sample
