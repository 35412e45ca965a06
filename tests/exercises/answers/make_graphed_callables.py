"""Answers to the exercises of *make_graphed_callables*: wrong ones, and other right ones (`__right_`)."""

from torch import nn

from helpers.capture import unchanged


def graph_without_one_dropout__all_in_eval(net, inputs):
    for block in net:
        block.eval()
    return torch.cuda.make_graphed_callables(net, (inputs,))


def graph_without_one_dropout__right_mode_restored(net, inputs):
    net[0].eval()
    graphed = torch.cuda.make_graphed_callables(net, (inputs.clone(),))
    graphed[0].train()  # ignored, as eval() would be
    return graphed


changed(
    graph_without_one_dropout,
    eager={"return torch.cuda.make_graphed_callables(net, (inputs.clone(),))": "return net"},
    no_warmup={"(net, (inputs.clone(),))": "(net, (inputs,), num_warmup_iters=0)"},
    right_by_probability={"net[0].eval()": "net[0][1].p = 0.0"},
)


changed(
    train_in_place__as_given,
    the_callers_batch={
        "(net, (batches[0][0].clone(),))": "(net, (batches[0][0],))",
        "optimizer.zero_grad(set_to_none=False)": "optimizer.zero_grad(set_to_none=True)",
    },
    half_the_rate={
        "for inputs, targets in batches:":
            "for group in optimizer.param_groups:\n"
            "    group['lr'] /= 2\n"
            "…",
    },
    eager={
        "graphed = torch.cuda.make_graphed_callables(net, (batches[0][0].clone(),))": "",
        ".mse_loss(graphed(inputs), targets)": ".mse_loss(net(inputs), targets)",
    },
    no_warmup={
        "graphed = torch.cuda.make_graphed_callables(net, (batches[0][0].clone(),))":
            "sample = batches[0][0].clone()\n"
            "graphed = torch.cuda.make_graphed_callables(net, (sample,), num_warmup_iters=0)",
        "optimizer.zero_grad(set_to_none=False)": "optimizer.zero_grad(set_to_none=True)",
    },
    right_set_to_none={
        "optimizer.zero_grad(set_to_none=False)": "optimizer.zero_grad(set_to_none=True)",
    },
    right_gradients_deleted={
        "optimizer.zero_grad(set_to_none=False)":
            "for parameter in net.parameters():\n    parameter.grad = None",
        "losses.append(loss.detach())": "losses.append(loss.item())",
    },
    right_gradient_cloned={
        "optimizer.step()":
            "if not losses:\n"
            "    for parameter in graphed.parameters():\n"
            "        parameter.grad = parameter.grad.clone()\n"
            "…",
    },
)


def graph_siamese__outputs_cloned(net, a, b):
    graphed = torch.cuda.make_graphed_callables(net, (a.clone(),))

    def loss_of(a, b):
        return (graphed(a).clone() - graphed(b).clone()).square().mean()

    return loss_of


def graph_siamese__graphed_in_each_call(net, a, b):
    return lambda a, b: graph_siamese(net, a, b)(a, b)


class Pair(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, a, b):
        return self.net(a), self.net(b)


class PairLoss(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, a, b):
        return (self.net(a) - self.net(b)).square().mean()


def graph_siamese__right_loss_in_the_graph(net, a, b):
    return torch.cuda.make_graphed_callables(PairLoss(net), (a.clone(), b.clone()))


changed(
    graph_siamese,
    eager={"torch.cuda.make_graphed_callables(net, (torch.cat([a, b]),))": "net"},
    no_warmup={"(torch.cat([a, b]),)": "(torch.cat([a, b]),), num_warmup_iters=0"},
    right_both_in_one_forward={
        "net, (torch.cat([a, b]),": "Pair(net), (a.clone(), b.clone()",
        "torch.cat([a, b])).chunk(2": "a, b",
    },
)


def graph_for_accumulation__right_unchanged(net, inputs):
    for parameter in net.parameters():
        parameter.grad = torch.zeros_like(parameter)
    with unchanged(net):
        return torch.cuda.make_graphed_callables(net, (inputs.clone(),))


changed(
    graph_for_accumulation,
    grad_is_none={"parameter.grad = torch.zeros_like(parameter)": "pass"},
    no_warmup={"(inputs.clone(),)": "(inputs.clone(),), num_warmup_iters=0"},
    buffers_replaced={
        "for name, buffer in graphed.named_buffers():\n"
        "    buffer.copy_(before[name])":
            "for name, buffer in before.items():\n"
            "    setattr(graphed[1], name.removeprefix('1.'), buffer)",
    },
    buffers_moved={"buffer.copy_(before[name])": "pass"},
    eager={"torch.cuda.make_graphed_callables(net, (inputs.clone(),))": "net"},
    nothing_returned={"return graphed": ""},
)
