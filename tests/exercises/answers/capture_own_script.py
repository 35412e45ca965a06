"""Answers to the exercises of *Capture your own script*: wrong ones, and other right ones
(`__right_`).
"""


class Loop:
    """The right answer, with places to go wrong at."""

    warmup, own, cloned, side, replayed_at_once, copies = 3, True, True, True, True, True

    def __init__(self, step):
        self.step, self.calls = step, 0
        self.stream, self.graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()

    def __call__(self, *batch):
        self.calls += 1
        if self.calls == 1:
            self.static = [tensor.clone() for tensor in batch] if self.own else batch
        if self.copies or self.calls <= self.warmup:
            for static, new in zip(self.static, batch, strict=True):
                static.copy_(new)
        if self.calls <= self.warmup:
            return self.eager()
        if self.calls == self.warmup + 1:
            with torch.cuda.graph(self.graph):
                self.loss = self.step(*self.static)
            if not self.replayed_at_once:
                return self.loss
        self.graph.replay()
        return self.loss.clone() if self.cloned else self.loss

    def eager(self):
        stream = self.stream if self.side else torch.cuda.current_stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            loss = self.step(*self.static)
        torch.cuda.current_stream().wait_stream(stream)
        return loss


def loop(step, **changes):
    return type("Changed", (Loop,), changes)(step)


def graph_after_warm_up__eager(step):
    return step


def graph_after_warm_up__kept_output(step):
    return loop(step, cloned=False)


def graph_after_warm_up__callers_tensors(step):
    return loop(step, own=False)


def graph_after_warm_up__on_the_default_stream(step):
    return loop(step, side=False)


def graph_after_warm_up__one_warm_up(step):
    return loop(step, warmup=1)


def graph_after_warm_up__capture_taken_for_a_step(step):
    return loop(step, replayed_at_once=False)


def graph_after_warm_up__names_bound_anew(step):
    train = loop(step, copies=False)
    return lambda *batch: train(*batch)


def graph_after_warm_up__captured_in_each_call(step):
    train, calls = loop(step), []

    def call(*batch):
        calls.append(batch)
        train.calls = min(train.calls, 3)
        if len(calls) > 4:
            train.graph = torch.cuda.CUDAGraph()
        return train(*batch)

    return call


def graph_after_warm_up__right_as_a_class(step):
    return loop(step)


def graph_after_warm_up__right_with_capture_step(step):
    side_stream, done, replays = torch.cuda.Stream(), [], []

    def train(*batch):
        if len(done) < 3:
            done.append(batch)
            side_stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side_stream):
                loss = step(*batch)
            torch.cuda.current_stream().wait_stream(side_stream)
            return loss
        if not replays:
            static = [tensor.clone() for tensor in batch]
            replays.append(capture_step(step, *static, warmup=0))
        return replays[0](*batch).clone()

    return train


def scheduled(net, batches, lr, wrap=GraphedStep, **options):
    optimizer = torch.optim.AdamW(net.parameters(), lr=lr, **options)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.7)

    def step(inputs, targets):
        optimizer.zero_grad(set_to_none=True)
        loss = torch.nn.functional.mse_loss(net(inputs), targets)
        loss.backward()
        optimizer.step()
        return loss.detach()

    train, losses = wrap(step), []
    for inputs, targets in batches:
        losses.append(train(inputs, targets))
        scheduler.step()
    return losses


def train_with_falling_rate__not_capturable(net, batches):
    return scheduled(net, batches, torch.tensor(0.05, device="cuda"))


def train_with_falling_rate__eager(net, batches):
    rate = torch.tensor(0.05, device="cuda")
    return scheduled(net, batches, rate, wrap=lambda step: step, capturable=True)


def train_with_falling_rate__new_tensors(net, batches):
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.05, capturable=True)
    optimizer.param_groups[0]["lr"] = torch.tensor(0.05, device="cuda")

    def step(inputs, targets):
        optimizer.zero_grad(set_to_none=True)
        loss = torch.nn.functional.mse_loss(net(inputs), targets)
        loss.backward()
        optimizer.step()
        return loss.detach()

    train, losses = GraphedStep(step), []
    for number, (inputs, targets) in enumerate(batches, 1):
        losses.append(train(inputs, targets))
        optimizer.param_groups[0]["lr"] = torch.tensor(0.05 * 0.7**number, device="cuda")
    return losses


def train_with_falling_rate__captured_anew(net, batches):
    def wrap(step):
        def train(*batch):
            with unchanged(net):
                return capture_step(step, *batch)()

        return train

    rate = torch.tensor(0.05, device="cuda")
    return scheduled(net, batches, rate, wrap=wrap, capturable=True)


def train_with_falling_rate__no_scheduler(net, batches):
    rate = torch.tensor(0.05, device="cuda")
    optimizer = torch.optim.AdamW(net.parameters(), lr=rate, capturable=True)

    def step(inputs, targets):
        optimizer.zero_grad(set_to_none=True)
        loss = torch.nn.functional.mse_loss(net(inputs), targets)
        loss.backward()
        optimizer.step()
        return loss.detach()

    train = GraphedStep(step)
    return [train(*batch) for batch in batches]


def train_with_falling_rate__right_filled_by_hand(net, batches):
    rate = torch.tensor(0.05, device="cuda")
    optimizer = torch.optim.AdamW(net.parameters(), lr=rate, capturable=True)

    def step(inputs, targets):
        optimizer.zero_grad(set_to_none=True)
        loss = torch.nn.functional.mse_loss(net(inputs), targets)
        loss.backward()
        optimizer.step()
        return loss.detach()

    train, losses = GraphedStep(step), []
    for number, (inputs, targets) in enumerate(batches):
        rate.fill_(0.05 * 0.7**number)
        losses.append(train(inputs, targets))
    return losses


def train_with_falling_rate__right_in_the_group(net, batches):
    def wrap(step):
        return GraphedStep(step)

    rate = torch.full((), 0.05, device="cuda")
    return scheduled(net, batches, rate, wrap=wrap, capturable=True, foreach=False)


def step_for_any_batch__graph_for_all(step, batch_size):
    return GraphedStep(step)


def step_for_any_batch__eager(step, batch_size):
    return step


def step_for_any_batch__padded(step, batch_size):
    graphed = GraphedStep(step)

    def train(inputs, targets):
        missing = batch_size - len(inputs)
        inputs = torch.cat([inputs, inputs.new_zeros(missing, inputs.shape[1])])
        targets = torch.cat([targets, targets.new_zeros(missing, targets.shape[1])])
        return graphed(inputs, targets)

    return train


def step_for_any_batch__new_graph_each_time(step, batch_size):
    def train(inputs, targets):
        return capture_step(step, inputs.clone(), targets.clone(), warmup=1)().clone()

    return train


def step_for_any_batch__right_wrapper_for_each_shape(step, batch_size):
    wrappers = {}

    def train(inputs, targets):
        if len(inputs) not in wrappers:
            wrappers[len(inputs)] = GraphedStep(step)
        return wrappers[len(inputs)](inputs, targets)

    return train


changed(
    step_for_any_batch,
    skipped={"return step(inputs, targets)": "return torch.zeros((), device='cuda')"},
)


def resume__warm_up_kept(net, optimizer, step, batch, checkpoint):
    net.load_state_dict(checkpoint["net"])
    optimizer.load_state_dict(checkpoint["optimizer"])
    replay = capture_step(step, *[tensor.clone() for tensor in batch])
    return lambda *batch: replay(*batch).clone()


def resume__loaded_inside(net, optimizer, step, batch, checkpoint):
    with unchanged(net, optimizer):
        net.load_state_dict(checkpoint["net"])
        optimizer.load_state_dict(checkpoint["optimizer"])
        replay = capture_step(step, *[tensor.clone() for tensor in batch])
    return lambda *batch: replay(*batch).clone()


def resume__eager(net, optimizer, step, batch, checkpoint):
    net.load_state_dict(checkpoint["net"])
    optimizer.load_state_dict(checkpoint["optimizer"])
    return step


def resume__callers_batch(net, optimizer, step, batch, checkpoint):
    net.load_state_dict(checkpoint["net"])
    optimizer.load_state_dict(checkpoint["optimizer"])
    with unchanged(net, optimizer):
        replay = capture_step(step, *batch)
    return lambda *batch: replay(*batch).clone()


def resume__kept_output(net, optimizer, step, batch, checkpoint):
    net.load_state_dict(checkpoint["net"])
    optimizer.load_state_dict(checkpoint["optimizer"])
    with unchanged(net, optimizer):
        return capture_step(step, *[tensor.clone() for tensor in batch])


def resume__right_first_steps_eager(net, optimizer, step, batch, checkpoint):
    net.load_state_dict(checkpoint["net"])
    optimizer.load_state_dict(checkpoint["optimizer"])
    return GraphedStep(step)


def resume__right_copied_in_place(net, optimizer, step, batch, checkpoint):
    replay = capture_step(step, *[tensor.clone() for tensor in batch])
    net.load_state_dict(checkpoint["net"])
    for number, parameter in enumerate(net.parameters()):
        saved = checkpoint["optimizer"]["state"][number]["momentum_buffer"]
        optimizer.state[parameter]["momentum_buffer"].copy_(saved)
    return lambda *batch: replay(*batch).clone()
