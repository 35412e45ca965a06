"""Answers to the exercises of *Capture a training step*: wrong ones, and other right ones (`__right_`)."""


def epoch_step_of(net, optimizer):
    def step(inputs, targets):
        optimizer.zero_grad(set_to_none=True)
        loss = torch.nn.functional.mse_loss(net(inputs), targets)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def train_epoch__the_callers_batch_is_static(net, optimizer, batches):
    with unchanged(net, optimizer):
        replay = capture_step(epoch_step_of(net, optimizer), *batches[0])
    return [replay(*batch).clone() for batch in batches]


def train_epoch__not_cloned(net, optimizer, batches):
    static_batch = [tensor.clone() for tensor in batches[0]]
    with unchanged(net, optimizer):
        replay = capture_step(epoch_step_of(net, optimizer), *static_batch)
    return [replay(*batch) for batch in batches]


def train_epoch__read_in_every_step(net, optimizer, batches):
    static_batch = [tensor.clone() for tensor in batches[0]]
    with unchanged(net, optimizer):
        replay = capture_step(epoch_step_of(net, optimizer), *static_batch)
    return [replay(*batch).item() for batch in batches]


def train_epoch__captured_in_the_loop(net, optimizer, batches):
    losses = []
    for inputs, targets in batches:
        with unchanged(net, optimizer):
            replay = capture_step(epoch_step_of(net, optimizer), inputs.clone(), targets.clone())
        losses.append(replay().clone())
    return losses


def train_epoch__eager(net, optimizer, batches):
    step = epoch_step_of(net, optimizer)
    return [step(*batch) for batch in batches]


def train_epoch__warm_up_kept(net, optimizer, batches):
    static_batch = [tensor.clone() for tensor in batches[0]]
    replay = capture_step(epoch_step_of(net, optimizer), *static_batch)
    return [replay(*batch).clone() for batch in batches]


def train_epoch__right_copied_in_the_loop(net, optimizer, batches):
    static_inputs, static_targets = (tensor.clone() for tensor in batches[0])
    step = epoch_step_of(net, optimizer)
    with unchanged(net, optimizer):
        replay = capture_step(lambda: step(static_inputs, static_targets))

    losses = torch.zeros(len(batches), device="cuda")
    for number, (inputs, targets) in enumerate(batches):
        static_inputs.copy_(inputs)
        static_targets.copy_(targets)
        losses[number] = replay()
    return losses


def log_step_of(net, optimizer):
    def step(inputs, targets):
        optimizer.zero_grad(set_to_none=True)
        loss = torch.nn.functional.mse_loss(net(inputs), targets)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def cloned(replay):
    def train(inputs, targets):
        return replay(inputs, targets).clone()

    return train


def log_and_capture__computed_afterwards(net, optimizer, inputs, targets):
    with unchanged(net, optimizer):
        replay = capture_step(log_step_of(net, optimizer), inputs.clone(), targets.clone())
    loss_before = torch.nn.functional.mse_loss(net(inputs), targets)
    return loss_before, cloned(replay)


def log_and_capture__warm_up_kept(net, optimizer, inputs, targets):
    loss_before = torch.nn.functional.mse_loss(net(inputs), targets).detach()
    replay = capture_step(log_step_of(net, optimizer), inputs.clone(), targets.clone())
    return loss_before, cloned(replay)


def log_and_capture__the_graphs_loss(net, optimizer, inputs, targets):
    with unchanged(net, optimizer):
        replay = capture_step(log_step_of(net, optimizer), inputs.clone(), targets.clone())
        loss_before = replay()
    return loss_before, cloned(replay)


def log_and_capture__eager(net, optimizer, inputs, targets):
    loss_before = torch.nn.functional.mse_loss(net(inputs), targets)
    return loss_before.detach(), log_step_of(net, optimizer)


def log_and_capture__right_without_gradients(net, optimizer, inputs, targets):
    with torch.inference_mode():
        loss_before = torch.nn.functional.mse_loss(net(inputs), targets)
    with unchanged(net, optimizer):
        replay = capture_step(log_step_of(net, optimizer), inputs.clone(), targets.clone())
    return loss_before, cloned(replay)


def log_and_capture__right_a_number(net, optimizer, inputs, targets):
    loss_before = torch.nn.functional.mse_loss(net(inputs), targets).item()
    with unchanged(net, optimizer):
        replay = capture_step(log_step_of(net, optimizer), inputs.clone(), targets.clone())
    return loss_before, cloned(replay)


def log_and_capture__right_afterwards(net, optimizer, inputs, targets):
    with unchanged(net, optimizer):
        replay = capture_step(log_step_of(net, optimizer), inputs.clone(), targets.clone())
    loss_before = torch.nn.functional.mse_loss(net(inputs), targets).detach()
    return loss_before, cloned(replay)


def continue_with_graph__momentum_zeroed(net, optimizer, step, *static_batch):
    weights = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    random_state = torch.cuda.get_rng_state()
    replay = capture_step(step, *static_batch)
    net.load_state_dict(weights)
    for state in optimizer.state.values():
        state["momentum_buffer"].zero_()
    torch.cuda.set_rng_state(random_state)
    return lambda *batch: replay(*batch).clone()


def continue_with_graph__momentum_left(net, optimizer, step, *static_batch):
    weights = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    random_state = torch.cuda.get_rng_state()
    replay = capture_step(step, *static_batch)
    net.load_state_dict(weights)
    torch.cuda.set_rng_state(random_state)
    return lambda *batch: replay(*batch).clone()


def continue_with_graph__state_loaded(net, optimizer, step, *static_batch):
    import copy

    weights = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    optimizer_state = copy.deepcopy(optimizer.state_dict())
    random_state = torch.cuda.get_rng_state()
    replay = capture_step(step, *static_batch)
    net.load_state_dict(weights)
    optimizer.load_state_dict(optimizer_state)
    torch.cuda.set_rng_state(random_state)
    return lambda *batch: replay(*batch).clone()


def continue_with_graph__state_dict_not_cloned(net, optimizer, step, *static_batch):
    weights = net.state_dict()
    with unchanged(optimizer):
        replay = capture_step(step, *static_batch)
    net.load_state_dict(weights)
    return lambda *batch: replay(*batch).clone()


def continue_with_graph__parameters_alone(net, optimizer, step, *static_batch):
    with unchanged(optimizer, *net.parameters()):
        replay = capture_step(step, *static_batch)
    return lambda *batch: replay(*batch).clone()


def continue_with_graph__random_state_left(net, optimizer, step, *static_batch):
    tensors = [*net.parameters(), *net.buffers()]
    for state in optimizer.state.values():
        tensors += state.values()
    values = [tensor.detach().clone() for tensor in tensors]
    replay = capture_step(step, *static_batch)
    with torch.no_grad():
        for tensor, value in zip(tensors, values, strict=True):
            tensor.copy_(value)
    return lambda *batch: replay(*batch).clone()


def continue_with_graph__on_the_default_stream(net, optimizer, step, inputs, targets):
    graph = torch.cuda.CUDAGraph()
    with unchanged(net, optimizer):
        step(inputs, targets)
        with torch.cuda.graph(graph):
            static_loss = step(inputs, targets)

    def train(new_inputs, new_targets):
        inputs.copy_(new_inputs)
        targets.copy_(new_targets)
        graph.replay()
        return static_loss.clone()

    return train


def continue_with_graph__right_with_unchanged(net, optimizer, step, *static_batch):
    with unchanged(net, optimizer):
        replay = capture_step(step, *[tensor.clone() for tensor in static_batch])
    return lambda *batch: replay(*batch).clone()


def continue_with_graph__right_tensor_by_tensor(net, optimizer, step, *static_batch):
    tensors = [*net.parameters(), *net.buffers()]
    for state in optimizer.state.values():
        tensors += state.values()
    values = [tensor.detach().clone() for tensor in tensors]
    random_state = torch.cuda.get_rng_state()
    replay = capture_step(step, *[tensor.clone() for tensor in static_batch], warmup=1)
    with torch.no_grad():
        for tensor, value in zip(tensors, values, strict=True):
            tensor.copy_(value)
    torch.cuda.set_rng_state(random_state)
    return lambda *batch: replay(*batch).clone()


def step_of(net, optimizer):
    def step(inputs, targets):
        optimizer.zero_grad(set_to_none=True)
        loss = torch.nn.functional.mse_loss(net(inputs), targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 0.1)
        optimizer.step()
        return loss.detach()

    return step


def capture_training__nothing_restored(net, optimizer, *static):
    replay = capture_step(step_of(net, optimizer), *static)
    return lambda *batch: replay(*batch).clone()


def capture_training__momentum_left(net, optimizer, *static):
    with unchanged(net):
        replay = capture_step(step_of(net, optimizer), *static)
    return lambda *batch: replay(*batch).clone()


def capture_training__state_loaded(net, optimizer, *static):
    before = optimizer.state_dict()
    with unchanged(net):
        replay = capture_step(step_of(net, optimizer), *static)
    optimizer.load_state_dict(before)
    return lambda *batch: replay(*batch).clone()


def capture_training__random_numbers_used_up(net, optimizer, *static):
    weights = [parameter.detach().clone() for parameter in net.parameters()]
    replay = capture_step(step_of(net, optimizer), *static)
    with torch.no_grad():
        for parameter, weight in zip(net.parameters(), weights, strict=True):
            parameter.copy_(weight)
            optimizer.state[parameter]["momentum_buffer"].zero_()
    return lambda *batch: replay(*batch).clone()


def capture_training__no_warm_up(net, optimizer, *static):
    replay = capture_step(step_of(net, optimizer), *static, warmup=0)
    return lambda *batch: replay(*batch).clone()


def capture_training__loss_not_cloned(net, optimizer, *static):
    with unchanged(net, optimizer):
        return capture_step(step_of(net, optimizer), *static)


def capture_training__optimizer_outside(net, optimizer, *static):
    def backward(inputs, targets):
        optimizer.zero_grad(set_to_none=True)
        loss = torch.nn.functional.mse_loss(net(inputs), targets)
        loss.backward()
        return loss.detach()

    with unchanged(net):
        replay = capture_step(backward, *static)

    def train(*batch):
        loss = replay(*batch).clone()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 0.1)
        optimizer.step()
        return loss

    return train


def capture_training__not_clipped(net, optimizer, *static):
    with unchanged(net, optimizer):
        replay = capture_step(epoch_step_of(net, optimizer), *static)
    return lambda *batch: replay(*batch).clone()


def without_zero_grad(net, optimizer):
    def step(inputs, targets):
        loss = torch.nn.functional.mse_loss(net(inputs), targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 0.1)
        optimizer.step()
        return loss.detach()

    return step


def capture_training__no_zero_grad(net, optimizer, *static):
    with unchanged(net, optimizer):
        replay = capture_step(without_zero_grad(net, optimizer), *static)
    return lambda *batch: replay(*batch).clone()


def capture_training__dropped_outside(net, optimizer, *static):
    with unchanged(net, optimizer):
        replay = capture_step(without_zero_grad(net, optimizer), *static)

    def train(*batch):
        optimizer.zero_grad(set_to_none=True)
        return replay(*batch).clone()

    return train


def capture_training__eager(net, optimizer, *static):
    return step_of(net, optimizer)


def by_hand(net, optimizer, static, stream, capture_stream=None):
    step = step_of(net, optimizer)
    static = [tensor.clone() for tensor in static]
    weights = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    random_state = torch.cuda.get_rng_state()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        step(*static)
    torch.cuda.current_stream().wait_stream(stream)

    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=capture_stream):
        static_loss = step(*static)

    net.load_state_dict(weights)
    for state in optimizer.state.values():
        state["momentum_buffer"].zero_()
    torch.cuda.set_rng_state(random_state)

    def train(*batch):
        for static_tensor, tensor in zip(static, batch, strict=True):
            static_tensor.copy_(tensor)
        graph.replay()
        return static_loss.clone()

    return train


def capture_training__on_the_default_stream(net, optimizer, *static):
    return by_hand(net, optimizer, static, torch.cuda.default_stream())


def capture_training__right_by_hand(net, optimizer, *static):
    return by_hand(net, optimizer, static, torch.cuda.Stream())


def capture_training__right_one_stream(net, optimizer, *static):
    stream = torch.cuda.Stream()
    return by_hand(net, optimizer, static, stream, capture_stream=stream)


def gradients_of__dropped_after_the_capture(net, inputs):
    replay = gradients_of(net, inputs)
    net.zero_grad(set_to_none=True)
    return replay


def gradients_of__first_inputs(net, inputs):
    replay = gradients_of(net, inputs)
    return lambda inputs: replay()


def gradients_of__loss_read(net, inputs):
    def step(inputs):
        net.zero_grad()
        loss = net(inputs).square().mean()
        loss.backward()
        return loss.item()

    return capture_step(step, inputs)


def gradients_of__on_the_default_stream(net, inputs):
    net(inputs).square().mean().backward()
    net.zero_grad(set_to_none=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        static_loss = net(inputs).square().mean()
        static_loss.backward()

    def replay(new):
        inputs.copy_(new)
        graph.replay()
        return static_loss.detach()

    return replay


changed(
    gradients_of,
    add_up={
        "net.zero_grad(set_to_none=True)": "",
        "return capture_step(step, inputs.clone())": "return capture_step(step, inputs)",
    },
    eager={
        "net.zero_grad(set_to_none=True)": "net.zero_grad()",
        "return capture_step(step, inputs.clone())": "return step",
    },
    no_warm_up={"(step, inputs.clone())": "(step, inputs, warmup=0)"},
    right_zeroed={"net.zero_grad(set_to_none=True)": "net.zero_grad(set_to_none=False)"},
)


changed(
    gradients_of__on_the_default_stream,
    right_dropped_before_the_capture={
        "net(inputs).square().mean().backward()":
            "inputs = inputs.clone()\n"
            "side_stream = torch.cuda.Stream()\n"
            "side_stream.wait_stream(torch.cuda.current_stream())\n"
            "with torch.cuda.stream(side_stream):\n"
            "    net(inputs).square().mean().backward()\n"
            "torch.cuda.current_stream().wait_stream(side_stream)",
    },
)
