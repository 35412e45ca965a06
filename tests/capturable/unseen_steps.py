"""Steps that were written down, with their labels, before capturable was asked; half are inference.

They are modelled on public code: decoding, diffusion, detection, contrastive learning, PPO, SAM.
test_judged_steps.py asks preflight about each.
"""

from functools import partial, wraps
from types import SimpleNamespace

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import clip_grad_norm_, parameters_to_vector, vector_to_parameters
from torch.utils.checkpoint import checkpoint

from tests.capturable.judged_steps import Case, clean, fault, numbers, on_batches, takes

N, D = 4, 6
TOKENS = 8
inference = torch.inference_mode()


def batch_with(step, device, *more, state=list):
    """A case of a step that takes one tensor and, in both batches, further arguments."""
    return Case(step, (numbers(device, N, D), *more), (numbers(device, N, D), *more), state=state)


def sgd(parameters):
    return torch.optim.SGD(parameters, 0.1)


def adamw(parameters):
    return torch.optim.AdamW(parameters, 0.1, capturable=True)


def learner(device, optimizer=sgd):
    """A small model, and an optimizer of its parameters."""
    model = nn.Sequential(nn.Linear(D, 8), nn.Tanh(), nn.Linear(8, D)).to(device)
    return model, optimizer(model.parameters())


def predicts(step):
    """Make a case of a step of inference that takes one tensor and keeps nothing."""
    return takes(N, D)(inference(step))


def trains(optimizer=sgd):
    """Make a case of a step that trains a small model on one tensor."""

    def made(step):
        @wraps(step)
        def make(device):
            learning = learner(device, optimizer)
            state = learning[0].parameters
            return on_batches(partial(step, *learning), device, N, D, state=lambda: [*state()])

        return make

    return made


def descend(optimizer, loss):
    """Take a step of the optimizer; return the loss."""
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()


# ------------------------------------------------------------------ inference, with a fault


@fault("sync")
def exits_when_confident(device):
    early, late = nn.Linear(D, 3).to(device), nn.Linear(D, 3).to(device)

    @inference
    def step(x):
        scores = early(x).softmax(-1)
        if scores.max() > 2:  # here
            return scores
        return late(x).softmax(-1)

    return on_batches(step, device, N, D)


@fault("sync")
def stops_when_all_have_ended(device):
    head = nn.Linear(D, TOKENS).to(device)

    @inference
    def step(x):
        tokens = head(x).argmax(-1)
        if (tokens == TOKENS).all():  # here
            return tokens * 0
        return tokens

    return on_batches(step, device, N, D)


@fault("sync")
@predicts
def one_hot_of_unknown_width(x):
    return F.one_hot(x.argmax(-1)).sum() + x  # here


@fault("sync")
def cache_written_at_a_tensor(device):
    cache, at = torch.zeros(N, TOKENS, D, device=device), torch.tensor(2, device=device)

    @inference
    def step(x):
        cache[:, at] = x  # here
        return cache.sum(1)

    return on_batches(step, device, N, D, state=lambda: [cache])


@fault("sync")
def cache_written_at_a_slice_of_tensors(device):
    cache, start = torch.zeros(TOKENS, D, device=device), torch.tensor(2, device=device)

    @inference
    def step(x):
        cache[start : start + N] = x  # here
        return cache * 2

    return on_batches(step, device, N, D, state=lambda: [cache])


@fault("frozen number")
def cache_written_at_a_number(device):
    cache, run = torch.zeros(N, TOKENS, D, device=device), SimpleNamespace(at=0)

    @inference
    def step(x):
        cache[:, run.at] = x  # here
        run.at = (run.at + 1) % TOKENS
        return cache.sum(1)

    return on_batches(step, device, N, D, state=lambda: [cache, run.at])


@fault("copy")
@predicts
def bad_words_in_a_list(x):
    scores = x * 2
    scores[:, [1, 3]] = -1e9  # here
    return scores.softmax(-1)


@fault("copy")
@predicts
def first_and_last_by_a_list(x):
    return x[:, [0, -1]].mean(1)  # here


@fault("copy")
def positions_made_on_the_cpu(device):
    table = nn.Embedding(TOKENS, D).to(device)

    @inference
    def step(x):
        places = torch.arange(len(x)).to(x.device)  # here
        return x + table(places)

    return on_batches(step, device, N, D)


@fault("copy")
@predicts
def mask_made_on_the_cpu(x):
    mask = torch.full((N, N), float("-inf")).triu(1).to(x.device)  # here
    return (x @ x.T + mask).softmax(-1) @ x


@fault("copy")
@takes(2, 64)
@inference
def window_made_on_the_cpu(x):
    window = torch.hann_window(16).to(x.device)  # here
    return torch.stft(x, 16, window=window, return_complex=True).abs()


@fault("CPU random numbers", "copy", random=True)
@predicts
def noise_made_on_the_cpu(x):
    noise = torch.randn(x.shape).to(x.device)  # here
    return 0.9 * x + 0.1 * noise


@fault("CPU random numbers", "copy", random=True)
def latents_of_a_generator(device):
    source = torch.Generator().manual_seed(1)

    @inference
    def step(x):
        latents = torch.randn((N, D), generator=source).to(x.device)  # here
        return x + latents

    return on_batches(step, device, N, D)


@fault("sync")
@predicts
def boxes_above_a_threshold(x):
    boxes = x[x.mean(1) > -9]  # here
    return boxes.sigmoid()


@fault("sync")
@predicts
def features_put_where_a_mask_says(x):
    text = torch.zeros(N, D, device=x.device)
    chosen = x.sum(1) > -99
    text[chosen] = x  # here
    return text * 2


@fault("sync")
@predicts
def camera_inverted(x):
    camera = x.T @ x + torch.eye(D, device=x.device)
    return x @ torch.linalg.inv(camera)  # here


@fault("sync")
@predicts
def covariance(x):
    return torch.cov(x)  # here


@fault("sync", "CPU work")
def score_in_a_log(device):
    log = []

    @inference
    def step(x):
        score = x.mean()
        log.append(str(score))  # here
        return x * score

    return on_batches(step, device, N, D, state=lambda: list(log))


@fault("sync")
def cut_to_the_longest(device):
    @inference
    def step(x, lengths):
        return x[:, : lengths.max()].relu().sum(1)  # here

    return batch_with(step, device, torch.tensor([2, 5, 3, 1], device=device))


@fault("sync")
@predicts
def scale_of_a_quantised_tensor(x):
    scale = float(x.abs().max()) / 127  # here
    return (x / scale).round() * scale


@fault("frozen number", "shape")
def as_many_as_the_request_says(device):
    @inference
    def step(x, k):
        return x.topk(k).values  # here

    return Case(step, (numbers(device, N, D), 2), (numbers(device, N, D), 3))


@fault("moved tensor")
def beams_in_another_order(device):
    run = SimpleNamespace(keys=torch.zeros(N, D, device=device))

    @inference
    def step(x):
        keys = run.keys + x
        best = x.sum(1).argsort()
        run.keys = keys.index_select(0, best)  # here
        return keys * 2

    return on_batches(step, device, N, D, state=lambda: [run.keys])


@fault("moved tensor")
def stream_of_chunks(device):
    cell, run = nn.GRUCell(D, D).to(device), SimpleNamespace(h=torch.zeros(N, D, device=device))

    @inference
    def step(x):
        hidden = cell(x, run.h)
        run.h = hidden  # here
        return hidden.tanh()

    return on_batches(step, device, N, D, state=lambda: [run.h])


@fault("CPU work")
def requests_counted(device):
    stats = {"calls": 0}

    @inference
    def step(x):
        stats["calls"] += 1  # here
        return x.relu()

    return on_batches(step, device, N, D, state=lambda: [stats["calls"]])


@fault("sync")
@predicts
def accepted_drafts(x):
    agree = (x > -99).all(1).long().cumprod(0)
    count = agree.sum().item()  # here
    return x[:count] * 2


@fault("sync")
@predicts
def asserts_that_nothing_is_nan(x):
    assert not x.isnan().any()  # here
    return x.exp()


# ------------------------------------------------------------------ inference, without a fault


@clean
def cache_written_at_a_row_of_positions(device):
    cache, at = torch.zeros(N, TOKENS, D, device=device), torch.zeros(1, dtype=int, device=device)

    @inference
    def step(x):
        cache.index_copy_(1, at, x.unsqueeze(1))
        at.add_(1).remainder_(TOKENS)
        return cache.sum(1)

    return on_batches(step, device, N, D, state=lambda: [cache, at])


@clean
def cache_assigned_at_a_row_of_positions(device):
    cache, at = torch.zeros(TOKENS, D, device=device), torch.arange(N, device=device)

    @inference
    def step(x):
        cache[at] = x
        cache[:, -1] = 0.5
        cache[6:, :2] = 1
        return cache * 2

    return on_batches(step, device, N, D, state=lambda: [cache])


# Until torch 2.15, the number is copied to the GPU (pytorch pull request 188330)
@(clean if torch.__version__ >= "2.15" else fault("sync", "copy", on_cpu=False))
def bad_words_in_a_tensor(device):
    banned = torch.tensor([1, 3], device=device)

    @inference
    def step(x):
        scores = x * 2
        scores[:, banned] = -1e9  # here
        return scores.softmax(-1)

    return on_batches(step, device, N, D)


@clean
@predicts
def negative_values_replaced(x):
    y = x * 2
    y[y < 0] = 0.0
    return y


@clean
@predicts
def rotary_embedding(x):
    places = torch.arange(N, device=x.device)
    rates = 100 ** (-torch.arange(0, D, 2, device=x.device) / D)
    angles = places[:, None] * rates
    even, odd = x[:, ::2], x[:, 1::2]
    turned = [
        even * angles.cos() - odd * angles.sin(),
        even * angles.sin() + odd * angles.cos(),
    ]
    return torch.stack(turned, -1).flatten(-2)


@clean
def causal_attention(device):
    layer = nn.Linear(D, 3 * D).to(device)

    @inference
    def step(x):
        q, k, v = layer(x).view(1, N, 3, 2, D // 2).permute(2, 0, 3, 1, 4)
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    return on_batches(step, device, N, D)


@clean(random=True)
@predicts
def sampled_without_a_wait(x):
    chances = x.softmax(-1)
    return (chances / torch.empty_like(chances).exponential_(1)).argmax(-1)


@clean
def features_scattered_by_a_mask(device):
    @inference
    def step(x, features):
        chosen = (x > 0) & (x < 99)
        return x.masked_scatter(chosen, features)

    return batch_with(step, device, numbers(device, N, D))


@clean
def dense_experts(device):
    experts = torch.randn(3, D, D, device=device)

    @inference
    def step(x):
        chances, chosen = (x @ experts[0][:, :3]).softmax(-1).topk(2)
        weights = torch.zeros(N, 3, device=x.device).scatter(1, chosen, chances)
        return torch.einsum("ne,nd,edh->nh", weights, x, experts)

    return on_batches(step, device, N, D)


@clean
@predicts
def one_hot_of_known_width(x):
    return F.one_hot(x.argmax(-1), D) + x


@clean
def convolutions_in_half(device):
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 2, 1))
    model.to(device).eval()

    @inference
    def step(x):
        with torch.autocast(device, dtype=torch.bfloat16):
            return model(x).float()

    return on_batches(step, device, 2, 3, 8, 8)


@clean
@predicts
def sizes_of_a_list_of_the_cpu(x):
    sizes = torch.tensor([2, 4]).tolist()
    left, right = x.split(sizes, 1)
    depth = int(torch.ceil(torch.tensor(N / 3)).item())
    return left.sum(1) + right.sum(1) * depth


@clean
def steps_of_a_schedule_of_the_cpu(device):
    model = nn.Linear(D, D).to(device)

    @inference
    def step(x):
        for t in torch.linspace(1, 0, 4):
            x = x - t * model(x)
        return x

    return on_batches(step, device, N, D)


@clean
def positions_of_a_mask(device):
    table = nn.Embedding(TOKENS, D).to(device)

    @inference
    def step(x):
        mask = x[:, 0] > 0
        places = (mask.long().cumsum(0) - 1).clamp(min=0).masked_fill(~mask, 1)
        return torch.where(mask[:, None], x + table(places), x)

    return on_batches(step, device, N, D)


# ------------------------------------------------------------------ training, with a fault


@fault("frozen number")
def rate_set_in_each_step(device):
    model, optimizer = learner(device, adamw)
    run = SimpleNamespace(n=1)

    def step(x):
        for group in optimizer.param_groups:
            group["lr"] = 0.1 / run.n
        run.n += 1
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()  # here

    return on_batches(step, device, N, D, state=lambda: [*model.parameters()])


@fault("frozen number")
def decay_that_warms_up(device):
    model, optimizer = learner(device)
    average, run = [p.detach().clone() for p in model.parameters()], SimpleNamespace(n=0)

    def step(x):
        descend(optimizer, model(x).square().mean())
        run.n += 1
        decay = min(0.99, (1 + run.n) / (10 + run.n))
        weights = [p.detach() for p in model.parameters()]
        torch._foreach_lerp_(average, weights, 1 - decay)  # here

    return on_batches(step, device, N, D, state=lambda: [*average])


@fault("frozen number")
def weight_of_a_loss_that_grows(device):
    model, optimizer = learner(device)
    run = SimpleNamespace(beta=0.1)

    def step(x):
        optimizer.zero_grad()
        y = model(x)
        loss = (y - x).square().mean() + run.beta * y.abs().mean()  # here
        run.beta *= 1.5
        loss.backward()
        optimizer.step()
        return loss.detach()

    return on_batches(step, device, N, D, state=lambda: [*model.parameters()])


@fault("sync")
@trains()
def step_skipped_at_a_large_norm(model, optimizer, x):
    optimizer.zero_grad()
    model(x).square().mean().backward()
    norm = clip_grad_norm_(model.parameters(), 1.0)
    if norm < 100:  # here
        optimizer.step()


@fault("sync")
def queue_with_a_read_pointer(device):
    queue, pointer = torch.zeros(8, D, device=device), torch.zeros(1, dtype=int, device=device)

    @torch.no_grad()
    def step(keys):
        at = int(pointer)  # here
        queue[at : at + N] = keys
        pointer[0] = (at + N) % 8
        return queue.sum(0)

    return on_batches(step, device, N, D, state=lambda: [queue, pointer])


@fault("sync")
def queue_with_a_pointer_in_a_slice(device):
    queue, pointer = torch.zeros(8, D, device=device), torch.zeros((), dtype=int, device=device)

    @torch.no_grad()
    def step(keys):
        queue[pointer : pointer + N] = keys  # here
        pointer.add_(N).remainder_(8)
        return queue.sum(0)

    return on_batches(step, device, N, D, state=lambda: [queue, pointer])


@fault("sync")
@trains()
def policy_that_is_validated(model, optimizer, x):
    policy = torch.distributions.Categorical(logits=model(x))  # here
    descend(optimizer, policy.entropy().mean())


@fault("sync")
@trains()
def stops_at_a_divergence(model, optimizer, x):
    for _ in range(2):
        y = model(x)
        if (y - x).square().mean() < -1:  # here
            break
        descend(optimizer, y.square().mean())


@fault("copy")
@trains()
def labels_made_on_the_cpu(model, optimizer, x):
    labels = (torch.arange(N) + N // 2) % N
    labels = labels.to(x.device)  # here
    views = F.normalize(model(x), dim=1)
    descend(optimizer, F.cross_entropy(views @ views.T, labels))


@fault("CPU random numbers", "copy", random=True)
@trains()
def shuffled_by_the_cpu(model, optimizer, x):
    order = torch.randperm(len(x))  # here
    descend(optimizer, model(x[order][:2]).square().mean())


@fault("CPU random numbers", "copy", random=True)
def timesteps_drawn_on_the_cpu(device):
    model, optimizer = learner(device)
    alphas = torch.linspace(0.99, 0.1, 10, device=device)

    def step(x):
        t = torch.randint(0, 10, (N,)).to(x.device)  # here
        noise = torch.randn_like(x)
        level = alphas[t][:, None]
        descend(optimizer, F.mse_loss(model(level * x + (1 - level) * noise), noise))

    return on_batches(step, device, N, D, state=lambda: [*model.parameters()])


@fault("CPU random numbers", "path", random=True)
@trains()
def layer_dropped_by_the_cpu(model, optimizer, x):
    optimizer.zero_grad()
    y = model(x)
    if torch.rand(1).item() < 0.5:  # here
        y = y.relu()
    y.square().mean().backward()
    optimizer.step()


@fault("sync")
@trains()
def hard_negatives_counted(model, optimizer, x):
    losses = model(x).square().mean(1)
    k = max(1, int((losses > 0.1).sum()))  # here
    descend(optimizer, losses.topk(k).values.mean())


@fault("moved tensor")
@trains()
def sharpness_with_old_weights(model, optimizer, x):
    optimizer.zero_grad()
    model(x).square().mean().backward()
    old = {p: p.data.clone() for p in model.parameters()}
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.05 * p.grad)
    optimizer.zero_grad()
    model(x).square().mean().backward()
    for p in model.parameters():
        p.data = old[p]  # here
    optimizer.step()


@fault("moved tensor")
def weights_of_a_vector(device):
    model, _ = learner(device)

    @torch.no_grad()
    def step(x):
        y = model(x)
        vector = parameters_to_vector(model.parameters()) * 0.9
        vector_to_parameters(vector, model.parameters())  # here
        return y

    return on_batches(step, device, N, D, state=lambda: [*model.parameters()])


@fault("moved tensor")
def buffers_that_change_places(device):
    run = SimpleNamespace(front=torch.zeros(D, device=device), back=torch.ones(D, device=device))

    @torch.no_grad()
    def step(x):
        run.back.copy_(0.5 * run.front + x.mean(0))
        run.front, run.back = run.back, run.front  # here
        return run.front * 1

    return on_batches(step, device, N, D, state=lambda: [run.front, run.back])


@fault("kept graph", "CPU work")
def losses_in_a_list(device):
    model, optimizer = learner(device)
    losses = []

    def step(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        losses.append(loss)  # here
        loss.backward()
        optimizer.step()

    return on_batches(step, device, N, D, state=lambda: [len(losses), *model.parameters()])


@fault("sync", "CPU work")
def loss_added_to_a_number(device):
    model, optimizer = learner(device)
    run = SimpleNamespace(total=0.0)

    def step(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        run.total += loss.item()  # here

    return on_batches(step, device, N, D, state=lambda: [run.total])


@fault("sync")
@trains()
def others_by_a_mask(model, optimizer, x):
    views = F.normalize(model(x), dim=1)
    apart = ~torch.eye(N, dtype=torch.bool, device=x.device)
    others = (views @ views.T)[apart].view(N, -1)  # here
    descend(optimizer, others.logsumexp(1).mean())


@fault("copy")
@trains()
def weights_of_classes_in_a_list(model, optimizer, x):
    weights = torch.tensor([1.0, 2.0, 1.0, 1.0, 3.0, 1.0], device=x.device)  # here
    descend(optimizer, F.cross_entropy(model(x), x.argmax(1), weight=weights))


@fault("optimizer")
@trains(torch.optim.AdamW)
def adamw_as_it_comes(model, optimizer, x):
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()  # here


# ------------------------------------------------------------------ training, without a fault


@clean
@trains(adamw)
def adamw_with_clipping(model, optimizer, x):
    optimizer.zero_grad()
    loss = model(x).square().mean()
    loss.backward()
    clip_grad_norm_(model.parameters(), 0.1)
    optimizer.step()
    return loss.detach()


@clean
@trains()
def micro_batches(model, optimizer, x):
    optimizer.zero_grad()
    for part in x.chunk(2):
        (model(part).square().mean() / 2).backward()
    optimizer.step()


@clean
@trains()
def checkpointed_in_half(model, optimizer, x):
    optimizer.zero_grad()
    with torch.autocast(x.device.type, dtype=torch.bfloat16):
        loss = checkpoint(model, x, use_reentrant=False).float().square().mean()
    loss.backward()
    optimizer.step()
    return loss.detach()


@clean
@trains()
def policy_that_is_not_validated(model, optimizer, x):
    policy = torch.distributions.Categorical(logits=model(x), validate_args=False)
    descend(optimizer, policy.entropy().mean() - policy.log_prob(x.argmax(1)).mean())


@clean
@trains()
def penalty_on_gradients(model, optimizer, x):
    points = x.detach().requires_grad_()
    (slope,) = torch.autograd.grad(model(points).sum(), points, create_graph=True)
    descend(optimizer, (slope.norm(dim=1) - 1).square().mean())


@clean
def codebook_by_averages(device):
    codes, counts = torch.randn(3, D, device=device), torch.ones(3, device=device)

    @torch.no_grad()
    def step(x):
        nearest = F.one_hot(torch.cdist(x, codes).argmin(1), 3).float()
        counts.mul_(0.9).add_(nearest.sum(0), alpha=0.1)
        codes.lerp_(nearest.T @ x / counts[:, None], 0.1)
        return nearest @ codes

    return on_batches(step, device, N, D, state=lambda: [codes, counts])


@clean
@trains()
def labels_made_on_the_gpu(model, optimizer, x):
    labels = (torch.arange(N, device=x.device) + N // 2) % N
    views = F.normalize(model(x), dim=1)
    loss = F.cross_entropy(views @ views.T, labels, label_smoothing=0.1, ignore_index=-1)
    descend(optimizer, loss)


@clean
def hidden_state_copied(device):
    cell, hidden = nn.GRUCell(D, D).to(device), torch.zeros(N, D, device=device)
    optimizer = torch.optim.SGD(cell.parameters(), 0.1, momentum=0.9, nesterov=True)

    def step(x):
        optimizer.zero_grad()
        new = cell(x, hidden)
        new.square().mean().backward()
        optimizer.step()
        hidden.copy_(new.detach())

    return on_batches(step, device, N, D, state=lambda: [hidden, *cell.parameters()])


@clean
def queue_with_a_row_of_positions(device):
    queue, pointer = torch.zeros(8, D, device=device), torch.arange(N, device=device)

    @torch.no_grad()
    def step(keys):
        queue[pointer] = keys
        pointer.add_(N).remainder_(8)
        return queue.sum(0)

    return on_batches(step, device, N, D, state=lambda: [queue, pointer])


@clean
def loss_kept_for_the_log(device):
    model, optimizer = learner(device)
    logs = {"loss": None}

    def step(x):
        logs["loss"] = descend(optimizer, model(x).square().mean())

    return on_batches(step, device, N, D, state=lambda: [logs["loss"], *model.parameters()])


@clean
def teacher_and_student(device):
    student, optimizer = learner(device)
    teacher, total = nn.Linear(D, D).to(device).eval(), torch.zeros((), device=device)

    def step(x):
        with torch.no_grad():
            target = teacher(x).softmax(-1)
        loss = F.kl_div(student(x).log_softmax(-1), target, reduction="batchmean")
        total.add_(descend(optimizer, loss))

    return on_batches(step, device, N, D, state=lambda: [total, *student.parameters()])


@clean(random=True)
def two_passes_with_dropout(device):
    model, optimizer = learner(device)
    drop = nn.Dropout(0.3)

    def step(x):
        optimizer.zero_grad()
        first, second = model(drop(x)).softmax(-1), model(drop(x)).softmax(-1)
        (first - second).square().mean().backward()
        optimizer.step()

    return on_batches(step, device, N, D, state=lambda: [*model.parameters()])
