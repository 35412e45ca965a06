"""Answers to the exercises of *Sample a diffusion model*: wrong ones, and other right ones
(`__right_`).
"""


def scalars(count):
    return [torch.zeros((), device="cuda") for _ in range(count)]


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


def graph_sampler__eager(model, noise):
    def sample(noise, scale, num_steps):
        x = noise.clone()
        for i in range(num_steps):
            x = x - model(x, 1 - i / num_steps, scale) / num_steps
        return x

    return sample


changed(
    graph_sampler,
    levels_as_numbers={
        "x = noise.clone()": "…\nlevels = [1.0, 0.5]",
        "(next_sigma - sigma) * model(x, sigma, guidance)":
            "(levels[1] - levels[0]) * model(x, levels[0], guidance)",
        "sigma.fill_(1 - i / num_steps)": "levels[0] = 1 - i / num_steps",
        "next_sigma.fill_(1 - (i + 1) / num_steps)": "levels[1] = 1 - (i + 1) / num_steps",
    },
    guidance_as_a_number={"model(x, sigma, guidance)": "model(x, sigma, 1.0)"},
    level_not_written={"model(x, sigma, guidance)": "model(x, torch.ones_like(sigma), guidance)"},
    size_of_steps_frozen={"(next_sigma - sigma) *": "-0.02 *"},
    goes_on={"replay = capture_step(step)": "…\nx.copy_(noise)", "x.copy_(noise)": ""},
    the_first_noise={
        "x = noise.clone()": "…\nfirst = noise.clone()",
        "x.copy_(noise)": "x.copy_(first)",
    },
)


changed(
    graph_sampler__all_steps_in_the_graph,
    a_graph_for_each_number={
        "x, guidance, replay = whole_loop(model, noise, 4)": "loops = {}",
        "x.copy_(noise)":
            "if num_steps not in loops:\n"
            "    loops[num_steps] = whole_loop(model, noise, num_steps)\n"
            "x, guidance, replay = loops[num_steps]\n"
            "…",
    },
)


changed(
    graph_sampler__eager,
    right_update_outside={
        "def sample(noise, scale, num_steps):":
            "sigma, guidance = scalars(2)\n"
            "replay = capture_step(model, noise.clone(), sigma, guidance)\n"
            "…",
        "for i in range(num_steps):": "scale = torch.tensor(scale, device='cuda')\n…",
        "x = x - model(x, 1 - i / num_steps, scale) / num_steps":
            "level = torch.full((), 1 - i / num_steps, device='cuda')\n"
            "x -= replay(x, level, scale) / num_steps",
    },
)


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
    graph_pipeline__right_own_table,
    kept_output={"return x.clone()": "return x"},
)


changed(
    graph_pipeline,
    level_of_the_next_step={"[scheduler.step_index]": "[scheduler.step_index + 1]"},
    level_not_written={
        "torch.zeros((), device='cuda')": "torch.ones((), device='cuda')",
        "replay(x, sigma)": "replay(x, static_sigma)",
    },
    steps_not_set={"scheduler.set_timesteps(num_steps)": "scheduler.step_index = 0"},
    eager={"replay(x, sigma)": "model(x, sigma.cuda())"},
)


changed(
    graph_pipeline__as_given,
    only_the_level_repaired={
        "def step():\n    sigma = scheduler.sigmas[scheduler.step_index]":
            "sigma = torch.zeros((), device='cuda')\ndef step():",
        "for _ in range(num_steps):":
            "for i in range(num_steps):\n    sigma.fill_(scheduler.sigmas[i].item())",
    },
    table_moved_to_the_gpu={
        "def step():": "scheduler.sigmas = scheduler.sigmas.cuda()\n…",
        "x.copy_(scheduler.step(model(x, sigma), x))":
            "return x.copy_(scheduler.step(model(x, sigma), x))",
        "x.copy_(noise)": "scheduler.sigmas = scheduler.sigmas.cuda()\n…",
    },
    counted_on_the_gpu={
        "def step():":
            "scheduler.sigmas = scheduler.sigmas.cuda()\n"
            "scheduler.step_index = torch.zeros((), dtype=torch.long, device='cuda')\n"
            "…",
        "x.copy_(scheduler.step(model(x, sigma), x))":
            "return x.copy_(scheduler.step(model(x, sigma), x))",
        "scheduler.set_timesteps(num_steps)": "",
    },
)


def to_register(generators):
    return generators if torch.__version__ < (2, 15) else []


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


changed(
    graph_seeded_sampler,
    sum_of_seeds={"manual_seed(seed)": "manual_seed(sum(seeds))"},
    noise_once={
        "x = draw_noise()": "…\nnoise = draw_noise()",
        "denoise(x, draw_noise())": "denoise(x, noise)",
    },
    drawn_before_the_capture={
        "def loop():\n    x = draw_noise()":
            "noises = [draw_noise() for _ in range(num_steps + 1)]\n"
            "def loop():\n"
            "    x = noises[0]",
        "for _ in range(num_steps):": "for noise in noises[1:]:",
        "denoise(x, draw_noise())": "denoise(x, noise)",
    },
    captured_in_each_call={
        "replay = capture_step(loop, generators=to_register)": "",
        "def sample(seeds):": "…\n    replay = capture_step(loop, generators=to_register)",
    },
    eager={"replay().clone()": "loop()"},
)
