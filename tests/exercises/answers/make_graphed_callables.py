"""Answers to the exercises of *make_graphed_callables*: wrong ones, and other right ones (`__right_`)."""

from torch import nn
from helpers.capture import unchanged


def graph_without_one_dropout__all_in_eval(net, inputs):
    for block in net:
        block.eval()
    return torch.cuda.make_graphed_callables(net, (inputs,))


def graph_without_one_dropout__eager(net, inputs):
    net[0].eval()
    return net


def graph_without_one_dropout__no_warmup(net, inputs):
    net[0].eval()
    return torch.cuda.make_graphed_callables(net, (inputs,), num_warmup_iters=0)


def graph_without_one_dropout__right_by_probability(net, inputs):
    net[0][1].p = 0.0
    return torch.cuda.make_graphed_callables(net, (inputs.clone(),))


def graph_without_one_dropout__right_mode_restored(net, inputs):
    net[0].eval()
    graphed = torch.cuda.make_graphed_callables(net, (inputs.clone(),))
    graphed[0].train()  # ignored, as eval() would be
    return graphed


def graph_without_one_dropout__the_callers_batch(net, inputs):
    net[0].eval()
    return torch.cuda.make_graphed_callables(net, (inputs,))


def train_in_place__the_callers_batch(net, optimizer, batches):
    graphed = torch.cuda.make_graphed_callables(net, (batches[0][0],))
    losses = []
    for inputs, targets in batches:
        optimizer.zero_grad(set_to_none=True)
        loss = torch.nn.functional.mse_loss(graphed(inputs), targets)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return losses


def train_in_place__half_the_rate(net, optimizer, batches):
    graphed = torch.cuda.make_graphed_callables(net, (batches[0][0].clone(),))
    losses = []
    for group in optimizer.param_groups:
        group["lr"] /= 2
    for inputs, targets in batches:
        optimizer.zero_grad(set_to_none=False)
        loss = torch.nn.functional.mse_loss(graphed(inputs), targets)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return losses


def train_in_place__eager(net, optimizer, batches):
    losses = []
    for inputs, targets in batches:
        optimizer.zero_grad(set_to_none=False)
        loss = torch.nn.functional.mse_loss(net(inputs), targets)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return losses


def train_in_place__no_warmup(net, optimizer, batches):
    sample = batches[0][0].clone()
    graphed = torch.cuda.make_graphed_callables(net, (sample,), num_warmup_iters=0)
    losses = []
    for inputs, targets in batches:
        optimizer.zero_grad(set_to_none=True)
        loss = torch.nn.functional.mse_loss(graphed(inputs), targets)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return losses


def train_in_place__right_set_to_none(net, optimizer, batches):
    graphed = torch.cuda.make_graphed_callables(net, (batches[0][0].clone(),))
    losses = []
    for inputs, targets in batches:
        optimizer.zero_grad(set_to_none=True)
        loss = torch.nn.functional.mse_loss(graphed(inputs), targets)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return losses


def train_in_place__right_gradients_deleted(net, optimizer, batches):
    graphed = torch.cuda.make_graphed_callables(net, (batches[0][0].clone(),))
    losses = []
    for inputs, targets in batches:
        for parameter in net.parameters():
            parameter.grad = None
        loss = torch.nn.functional.mse_loss(graphed(inputs), targets)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def train_in_place__right_gradient_cloned(net, optimizer, batches):
    graphed = torch.cuda.make_graphed_callables(net, (batches[0][0].clone(),))
    losses = []
    for inputs, targets in batches:
        optimizer.zero_grad(set_to_none=False)
        loss = torch.nn.functional.mse_loss(graphed(inputs), targets)
        loss.backward()
        if not losses:
            for parameter in graphed.parameters():
                parameter.grad = parameter.grad.clone()
        optimizer.step()
        losses.append(loss.detach())
    return losses


def graph_siamese__outputs_cloned(net, a, b):
    graphed = torch.cuda.make_graphed_callables(net, (a.clone(),))

    def loss_of(a, b):
        return (graphed(a).clone() - graphed(b).clone()).square().mean()

    return loss_of


def graph_siamese__eager(net, a, b):
    def loss_of(a, b):
        return (net(a) - net(b)).square().mean()

    return loss_of


def graph_siamese__graphed_in_each_call(net, a, b):
    def loss_of(a, b):
        graphed = torch.cuda.make_graphed_callables(net, (torch.cat([a, b]),))
        output_a, output_b = graphed(torch.cat([a, b])).chunk(2)
        return (output_a - output_b).square().mean()

    return loss_of


def graph_siamese__no_warmup(net, a, b):
    sample = torch.cat([a, b])
    graphed = torch.cuda.make_graphed_callables(net, (sample,), num_warmup_iters=0)

    def loss_of(a, b):
        output_a, output_b = graphed(torch.cat([a, b])).chunk(2)
        return (output_a - output_b).square().mean()

    return loss_of


class Pair(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, a, b):
        return self.net(a), self.net(b)


class Wrapper(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, x):
        return self.net(x)


def graph_siamese__right_both_in_one_forward(net, a, b):
    graphed = torch.cuda.make_graphed_callables(Pair(net), (a.clone(), b.clone()))

    def loss_of(a, b):
        output_a, output_b = graphed(a, b)
        return (output_a - output_b).square().mean()

    return loss_of


class PairLoss(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, a, b):
        return (self.net(a) - self.net(b)).square().mean()


def graph_siamese__right_loss_in_the_graph(net, a, b):
    return torch.cuda.make_graphed_callables(PairLoss(net), (a.clone(), b.clone()))


def graph_siamese__right_a_graph_for_each(net, a, b):
    graph_a, graph_b = torch.cuda.make_graphed_callables(
        (Wrapper(net), Wrapper(net)), ((a.clone(),), (b.clone(),))
    )

    def loss_of(a, b):
        return (graph_a(a) - graph_b(b)).square().mean()

    return loss_of


def graph_for_accumulation__grad_is_none(net, inputs):
    with unchanged(net):
        return torch.cuda.make_graphed_callables(net, (inputs,))


def graph_for_accumulation__no_warmup(net, inputs):
    for parameter in net.parameters():
        parameter.grad = torch.zeros_like(parameter)
    return torch.cuda.make_graphed_callables(net, (inputs,), num_warmup_iters=0)


def graph_for_accumulation__buffers_moved(net, inputs):
    for parameter in net.parameters():
        parameter.grad = torch.zeros_like(parameter)
    return torch.cuda.make_graphed_callables(net, (inputs,))


def graph_for_accumulation__buffers_replaced(net, inputs):
    before = {name: buffer.clone() for name, buffer in net[1].named_buffers()}
    graphed = torch.cuda.make_graphed_callables(net, (inputs.clone(),))
    for name, buffer in before.items():
        setattr(graphed[1], name, buffer)
    for parameter in graphed.parameters():
        parameter.grad = torch.zeros_like(parameter)
    return graphed


def graph_for_accumulation__the_callers_batch(net, inputs):
    for parameter in net.parameters():
        parameter.grad = torch.zeros_like(parameter)
    with unchanged(net):
        return torch.cuda.make_graphed_callables(net, (inputs,))


def graph_for_accumulation__eager(net, inputs):
    for parameter in net.parameters():
        parameter.grad = torch.zeros_like(parameter)
    return net


def graph_for_accumulation__nothing_returned(net, inputs):
    for parameter in net.parameters():
        parameter.grad = torch.zeros_like(parameter)
    with unchanged(net):
        torch.cuda.make_graphed_callables(net, (inputs,))


def graph_for_accumulation__right_unchanged(net, inputs):
    for parameter in net.parameters():
        parameter.grad = torch.zeros_like(parameter)
    with unchanged(net):
        return torch.cuda.make_graphed_callables(net, (inputs.clone(),))


def graph_for_accumulation__right_by_state_dict(net, inputs):
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    graphed = torch.cuda.make_graphed_callables(net, (inputs.clone(),), num_warmup_iters=5)
    graphed.load_state_dict(before)
    for parameter in graphed.parameters():
        parameter.grad = torch.zeros_like(parameter)
    return graphed
