"""Answers to the exercises of *Train on several GPUs*: wrong ones, and other right ones (`__right_`)."""


def on_side_stream(net):
    side_stream = torch.cuda.Stream()
    side_stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side_stream):
        ddp = DistributedDataParallel(net)
    torch.cuda.current_stream().wait_stream(side_stream)
    return ddp


def step_of(net):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def step(x, y):
        optimizer.zero_grad()
        loss = mse_loss(net(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def capture_ddp__on_the_default_stream(net, x, y):
    ddp = DistributedDataParallel(net)
    with unchanged(ddp):
        replay = capture_step(step_of(ddp), x.clone(), y.clone(), warmup=11)
    return lambda x, y: replay(x, y).clone()


def capture_ddp__ten_warm_ups(net, x, y):
    ddp = on_side_stream(net)
    with unchanged(ddp):
        replay = capture_step(step_of(ddp), x.clone(), y.clone(), warmup=10)
    return lambda x, y: replay(x, y).clone()


def capture_ddp__the_bare_network(net, x, y):
    on_side_stream(net)
    with unchanged(net):
        replay = capture_step(step_of(net), x.clone(), y.clone(), warmup=11)
    return lambda x, y: replay(x, y).clone()


def capture_ddp__no_ddp(net, x, y):
    with unchanged(net):
        replay = capture_step(step_of(net), x.clone(), y.clone(), warmup=11)
    return lambda x, y: replay(x, y).clone()


def capture_ddp__in_no_sync(net, x, y):
    ddp = on_side_stream(net)
    with unchanged(ddp), ddp.no_sync():
        replay = capture_step(step_of(ddp), x.clone(), y.clone(), warmup=11)
    return lambda x, y: replay(x, y).clone()


def capture_ddp__warm_up_trains(net, x, y):
    replay = capture_step(step_of(on_side_stream(net)), x.clone(), y.clone(), warmup=11)
    return lambda x, y: replay(x, y).clone()


def capture_ddp__not_cloned(net, x, y):
    ddp = on_side_stream(net)
    with unchanged(ddp):
        return capture_step(step_of(ddp), x.clone(), y.clone(), warmup=11)


def capture_ddp__eager(net, x, y):
    return step_of(on_side_stream(net))


def capture_ddp__always_the_first_batch(net, x, y):
    ddp = on_side_stream(net)
    with unchanged(ddp):
        replay = capture_step(step_of(ddp), x.clone(), y.clone(), warmup=11)
    return lambda x, y: replay().clone()


def capture_ddp__D17_captured_on_the_callers_tensors(net, x, y):
    ddp = on_side_stream(net)
    step = step_of(ddp)
    with unchanged(ddp):
        replay = capture_step(lambda: step(x, y), warmup=11)

    def train(new_x, new_y):
        x.copy_(new_x)
        y.copy_(new_y)
        return replay().clone()

    return train


def capture_ddp__D8_a_number(net, x, y):
    ddp = on_side_stream(net)
    with unchanged(ddp):
        replay = capture_step(step_of(ddp), x.clone(), y.clone(), warmup=11)
    return lambda x, y: replay(x, y).item()


def capture_ddp__right_by_hand(net, x, y):
    x, y = x.clone(), y.clone()
    ddp = on_side_stream(net)
    step = step_of(ddp)
    side_stream = torch.cuda.Stream()
    graph = torch.cuda.CUDAGraph()
    with unchanged(ddp):
        side_stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side_stream):
            for _ in range(12):
                step(x, y)
        torch.cuda.current_stream().wait_stream(side_stream)
        with torch.cuda.graph(graph):
            loss = step(x, y)

    def train(new_x, new_y):
        x.copy_(new_x)
        y.copy_(new_y)
        graph.replay()
        return loss.clone()

    return train


def backward_of_half(net, x, y):
    loss = mse_loss(net(x), y) / 2
    loss.backward()
    return loss


def half_unsynced(ddp, x, y):
    with ddp.no_sync():
        return backward_of_half(ddp, x, y)


def accumulating(net, x, y, first_half, second_half=backward_of_half, warmup=11):
    """Each half is a function of (ddp, x, y): forward and backward pass of a micro-batch."""
    ddp = on_side_stream(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def step(x, y):
        optimizer.zero_grad()
        first = first_half(ddp, x[::2], y[::2])
        second = second_half(ddp, x[1::2], y[1::2])
        optimizer.step()
        return (first + second).detach()

    with unchanged(ddp):
        replay = capture_step(step, x.clone(), y.clone(), warmup=warmup)
    return lambda x, y: replay(x, y).clone()


def accumulate_ddp__both_unsynced(net, x, y):
    return accumulating(net, x, y, half_unsynced, half_unsynced)


def accumulate_ddp__the_first_is_not_trained(net, x, y):
    return accumulating(net, x, y, lambda ddp, x, y: mse_loss(net(x), y) / 2)


def accumulate_ddp__ten_steps_of_warm_up(net, x, y):
    return accumulating(net, x, y, half_unsynced, warmup=10)


def accumulate_ddp__right_by_the_bare_network(net, x, y):
    return accumulating(net, x, y, lambda ddp, x, y: backward_of_half(net, x, y))


def graph_under_ddp__ddp_is_not_called(net, x, y):
    graphed = torch.cuda.make_graphed_callables(net, (x.clone(),))
    DistributedDataParallel(graphed)
    return step_of(graphed)


def graph_under_ddp__no_graphs(net, x, y):
    return step_of(DistributedDataParallel(net))


def graph_under_ddp__whole_step(net, x, y):
    ddp = on_side_stream(net)
    with unchanged(ddp):
        replay = capture_step(step_of(ddp), x.clone(), y.clone(), warmup=11)
    return lambda x, y: replay(x, y).clone()


def graph_under_ddp__no_optimizer_step(net, x, y):
    ddp = DistributedDataParallel(torch.cuda.make_graphed_callables(net, (x.clone(),)))

    def train(x, y):
        ddp.zero_grad()
        loss = mse_loss(ddp(x), y)
        loss.backward()
        return loss.detach()

    return train


def graph_under_ddp__right_on_a_side_stream(net, x, y):
    graphed = torch.cuda.make_graphed_callables(net, (x.clone(),), num_warmup_iters=5)
    return step_of(on_side_stream(graphed))


def skipping(net, x, y, decide, held="both", zero_gradients=False):
    """decide(loss): whether to keep the step. held: what a bad step leaves as it was."""
    ddp = on_side_stream(net)
    weights = list(net.parameters())
    optimizer = torch.optim.SGD(weights, lr=0.1, momentum=0.9)
    momenta = [torch.zeros_like(weight) for weight in weights]
    for weight, momentum in zip(weights, momenta, strict=True):
        optimizer.state[weight]["momentum_buffer"] = momentum
    state = {"both": [*weights, *momenta], "weights": weights, "nothing": []}[held]

    def step(x, y):
        optimizer.zero_grad()
        loss = mse_loss(ddp(x), y)
        loss.backward()
        good = decide(loss.detach())
        if zero_gradients:
            for weight in weights:
                weight.grad = torch.where(good, weight.grad, 0)
        before = [tensor.detach().clone() for tensor in state]
        optimizer.step()
        with torch.no_grad():
            for tensor, old in zip(state, before, strict=True):
                tensor.copy_(torch.where(good, tensor, old))
        return loss.detach()

    with unchanged(ddp, optimizer):
        replay = capture_step(step, x.clone(), y.clone(), warmup=11)
    return lambda x, y: replay(x, y).clone()


def together(limit):
    """On all ranks: whether no rank's loss is bad."""

    def decide(loss):
        bad = (~(loss < limit)).float()
        dist.all_reduce(bad)
        return bad == 0

    return decide


def skip_together__zero_gradients(net, x, y, limit):
    return skipping(net, x, y, together(limit), held="nothing", zero_gradients=True)


def skip_together__momentum_not_held(net, x, y, limit):
    return skipping(net, x, y, together(limit), held="weights", zero_gradients=True)


def skip_together__weights_alone(net, x, y, limit):
    return skipping(net, x, y, together(limit), held="weights")


def skip_together__each_rank_alone(net, x, y, limit):
    return skipping(net, x, y, lambda loss: loss < limit)


def skip_together__always(net, x, y, limit):
    return skipping(net, x, y, lambda loss: torch.zeros_like(loss) > 0)


def skip_together__D13_more_than_half_of_the_ranks(net, x, y, limit):
    def decide(loss):
        bad = (~(loss < limit)).float()
        dist.all_reduce(bad, op=dist.ReduceOp.AVG)
        return ~(bad > 0.5)

    return skipping(net, x, y, decide)


def skip_together__right_D7_maximum_of_the_losses(net, x, y, limit):
    def decide(loss):
        worst = loss.clone()
        dist.all_reduce(worst, op=dist.ReduceOp.MAX)
        return worst < limit

    return skipping(net, x, y, decide)


def skip_together__right_by_a_minimum(net, x, y, limit):
    def decide(loss):
        good = (loss < limit).float()
        dist.all_reduce(good, op=dist.ReduceOp.MIN)
        return good > 0

    return skipping(net, x, y, decide)


def skip_together__right_by_a_maximum(net, x, y, limit):
    def decide(loss):
        bad = (~(loss < limit)).int()
        dist.all_reduce(bad, dist.ReduceOp.MAX)
        return bad == 0

    return skipping(net, x, y, decide, zero_gradients=True)


def skip_together__right_by_hand(net, x, y, limit):
    """SGD with momentum, written out; the step of the momentum is zero too."""
    side_stream = torch.cuda.Stream()
    side_stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side_stream):
        ddp = DistributedDataParallel(net)
    torch.cuda.current_stream().wait_stream(side_stream)
    momenta = [torch.zeros_like(weight) for weight in net.parameters()]

    def step(x, y):
        ddp.zero_grad()
        loss = mse_loss(ddp(x), y)
        loss.backward()
        good = together(limit)(loss.detach())
        with torch.no_grad():
            for weight, momentum in zip(net.parameters(), momenta, strict=True):
                momentum.copy_(torch.where(good, 0.9 * momentum + weight.grad, momentum))
                weight.sub_(torch.where(good, 0.1 * momentum, 0))
        return loss.detach()

    with unchanged(ddp, *momenta):
        replay = capture_step(step, x.clone(), y.clone(), warmup=11)
    return lambda x, y: replay(x, y).clone()
