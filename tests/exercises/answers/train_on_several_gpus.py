"""Answers to the exercises of *Train on several GPUs*: wrong ones, and other right ones (`__right_`)."""


changed(
    capture_ddp,
    on_the_default_stream={"with torch.cuda.stream(side_stream):": "if True:"},
    ten_warm_ups={"warmup=11": "warmup=10"},
    the_bare_network={"ddp(x)": "net(x)"},
    no_ddp={"ddp = DistributedDataParallel(net)": "ddp = net"},
    in_no_sync={"with unchanged(ddp):": "with unchanged(ddp), ddp.no_sync():"},
    always_the_first_batch={"replay(x, y)": "replay()"},
    captured_on_the_callers_tensors={"x.clone(), y.clone()": "x, y"},
    a_number={"replay(x, y).clone()": "replay(x, y).item()"},
    right_by_squares={"mse_loss(ddp(x), y)": "(ddp(x) - y).square().mean()"},
)


changed(
    accumulate_ddp,
    right_by_the_bare_network={
        "ddp.no_sync()": "torch.enable_grad()",
        "ddp(x[::2])": "net(x[::2])",
    },
    both_unsynced={
        "second = mse_loss(ddp(x[1::2]), y[1::2]) / 2\nsecond.backward()":
            "with ddp.no_sync():\n"
            "    second = mse_loss(ddp(x[1::2]), y[1::2]) / 2\n"
            "    second.backward()",
    },
    the_first_is_not_trained={"ddp(x[::2])": "net(x[::2])", "first.backward()": ""},
    ten_steps_of_warm_up={"warmup=11": "warmup=10"},
)


def graph_under_ddp__whole_step(net, x, y):
    return capture_ddp(net, x, y)


changed(
    graph_under_ddp,
    ddp_is_not_called={"ddp(x)": "graphed(x)"},
    no_graphs={"torch.cuda.make_graphed_callables(net, (x.clone(),))": "net"},
    no_optimizer_step={"optimizer.step()": ""},
    right_on_a_side_stream={
        "(x.clone(),)": "(x.clone(),), num_warmup_iters=5",
        "ddp = DistributedDataParallel(graphed)":
            "side_stream = torch.cuda.Stream()\n"
            "side_stream.wait_stream(torch.cuda.current_stream())\n"
            "with torch.cuda.stream(side_stream):\n"
            "    …\n"
            "torch.cuda.current_stream().wait_stream(side_stream)",
    },
)


changed(
    skip_together,
    zero_gradients={
        "state = [*net.parameters(), *momenta]": "state = []",
        "dist.all_reduce(bad)":
            "…\n"
            "for weight in net.parameters():\n"
            "    weight.grad = torch.where(bad == 0, weight.grad, 0)",
    },
    momentum_not_held={
        "state = [*net.parameters(), *momenta]": "state = list(net.parameters())",
        "dist.all_reduce(bad)":
            "…\n"
            "for weight in net.parameters():\n"
            "    weight.grad = torch.where(bad == 0, weight.grad, 0)",
    },
    weights_alone={"state = [*net.parameters(), *momenta]": "state = list(net.parameters())"},
    each_rank_alone={"dist.all_reduce(bad)": ""},
    always={"torch.where(bad == 0, tensor, old)": "old"},
    more_than_half_of_the_ranks={
        "dist.all_reduce(bad)": "dist.all_reduce(bad, op=dist.ReduceOp.AVG)",
        "bad == 0": "bad <= 0.5",
    },
    right_D7_maximum_of_the_losses={
        "bad = (~(loss.detach() < limit)).float()\ndist.all_reduce(bad)":
            "worst = loss.detach().clone()\ndist.all_reduce(worst, op=dist.ReduceOp.MAX)",
        "bad == 0": "worst < limit",
    },
    right_by_a_minimum={
        "bad = (~(loss.detach() < limit)).float()\ndist.all_reduce(bad)":
            "good = (loss.detach() < limit).float()\ndist.all_reduce(good, op=dist.ReduceOp.MIN)",
        "bad == 0": "good > 0",
    },
    right_by_a_maximum={
        "(~(loss.detach() < limit)).float()": "(~(loss.detach() < limit)).int()",
        "dist.all_reduce(bad)":
            "dist.all_reduce(bad, dist.ReduceOp.MAX)\n"
            "for weight in net.parameters():\n"
            "    weight.grad = torch.where(bad == 0, weight.grad, 0)",
    },
)
