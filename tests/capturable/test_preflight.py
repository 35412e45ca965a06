"""preflight names each fault with its line, and is silent about good steps.

On the CPU its tensors stand in for the GPU's (device="cpu"); copies between the two need a GPU.
"""

import random
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch.nn.functional import mse_loss

from capturable import preflight
from capturable.operators import cpu_scalar_values, storage_address
from capturable.streams import Joins
from helpers.model import make_batches, make_model, make_optimizer, training_step
from tests.support.machine import needs_gpu

WIDTHS = (16, 12, 8, 6, 4)
DEVICES = ["cpu", pytest.param("cuda", marks=needs_gpu)]


def batches_on(device):
    return make_batches(3, 10, WIDTHS, device)


def rules(step, *inputs, device="cpu", **options):
    return {finding.rule for finding in preflight(step, *inputs, device=device, **options)}


def rules_at_lines(step, *inputs, device="cpu", **options):
    """The findings as a set of (rule, text of the line)."""
    found = preflight(step, *inputs, device=device, **options)
    return {(finding.rule, finding.line.split("  ", 1)[-1]) for finding in found}


X = torch.linspace(-1, 1, 12).reshape(3, 4)


@pytest.mark.parametrize(
    "step, rule",
    [
        (lambda x: [x.numpy(), x][1], "sync"),
        (lambda x: [x.cpu(), x][1], "sync"),
        (lambda x: x * random.random(), "CPU work"),
        (lambda x: x * random.random(), "frozen number"),
        (lambda x: [print("step"), x][1], "CPU work"),
        (lambda x: [Path(__file__).open().close(), x][1], "CPU work"),
        (lambda x: [torch.manual_seed(3), x][1], "seeding"),
        (lambda x: x + torch.rand(4, generator=torch.Generator()), "generator"),
        (lambda x: 3.5, "output"),
    ],
)
def test_a_fault_is_named(step, rule):
    assert rule in rules(step, X.clone())


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    "product", [torch.prod, partial(torch.prod, dim=1), partial(torch.cumprod, dim=1)]
)
def test_backward_of_a_product_reads_values(device, product):
    """Below a dispatch mode it takes another way, which reads none."""
    x = X.clone().to(device).requires_grad_()
    assert rules_at_lines(lambda x: product(x).sum().backward(), x, device=device) == {
        (
            "sync",
            "assert rules_at_lines(lambda x: product(x).sum().backward(), x, device=device) == {",
        )
    }
    assert not preflight(lambda x: product(x).sum(), x, device=device)


@pytest.mark.parametrize("device", DEVICES)
def test_code_that_asks_whether_it_is_captured_is_told_so(device):
    asked = torch.cuda.is_current_stream_capturing

    def step(x):
        if not torch.cuda.is_current_stream_capturing() and x.sum().item() > 0:
            return x
        return x * 2

    (finding,) = preflight(step, X.clone().to(device), device=device)
    assert (finding.rule, finding.level) == ("capture check", "note")
    assert finding.found.endswith("aten::mul.Tensor runs in the capture, aten::sum in an eager run")
    assert torch.cuda.is_current_stream_capturing is asked


def test_what_follows_from_a_shape_or_a_size_is_no_finding_of_its_own():
    state = {"n": 2}

    def step(x):
        state["n"] -= 1
        part = x[: state["n"] + 1] * 1  # the cause
        return part.mean() * part.numel() + part.view(-1).reshape(-1, 2).mean(0).sum()

    rows = rules_at_lines(step, X.clone())
    assert {line for _, line in rows} == {
        'state["n"] -= 1',
        'part = x[: state["n"] + 1] * 1  # the cause',
    }

    def selects(x):
        part = x[x > 0]  # the cause
        return (part * 2).mean()

    assert rules_at_lines(selects, X.clone(), other_inputs=(X.roll(1, 1) - 0.3,)) == {
        ("sync", "part = x[x > 0]  # the cause")
    }


def test_streams_are_joined_by_events():
    rows = []
    joins = Joins("main", lambda rule, line, what: rows.append((line, what.split()[-1])))
    joins.ran("main", 1)
    joins.ran("side", 2)  # has not waited
    joins.waited("main", joins.work_before_event("side"))
    joins.waited("other", joins.work_before_event("main"))
    joins.ran("other", 3)
    joins.waited("third", joins.work_before_event("other"))
    joins.ran("third", 4)
    joins.waited("main", joins.work_before_event("third"))  # and with it for other
    joins.report_unjoined_work()
    assert rows == [(2, "stream")]
    joins.ran("third", 5)  # after the event
    joins.report_unjoined_work()
    assert rows == [(2, "stream"), (5, "work")]


def test_a_fault_in_the_backward_pass_belongs_to_the_line_of_backward():
    class Reads(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, grad):
            return grad * grad.sum().item()  # in the user's own function

    def step(x):
        Reads.apply(x).sum().backward()

    assert (
        "sync",
        "return grad * grad.sum().item()  # in the user's own function",
    ) in rules_at_lines(step, X.clone().requires_grad_())


def test_control_flow_of_torch_is_looked_into():
    def branches(x):
        return torch.cond(x.sum() > 0, lambda x: x.relu(), lambda x: x.tanh(), (x,)).sum()

    def loops(x):
        return torch.while_loop(lambda i: i < 3, lambda i: (i + 1,), (x.new_zeros(()),))

    for step, text in ((branches, "return torch.cond("), (loops, "return torch.while_loop(")):
        (finding,) = preflight(step, X.clone(), device="cpu")
        assert finding.rule == "sync" and text in finding.line
    rows = rules_at_lines(lambda x: branches(x).backward(), X.clone().requires_grad_())
    assert {rule for rule, _ in rows} == {"sync"}


def test_higher_order_operators_run():
    from torch._higher_order_ops.scan import scan
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, 16, 16, device="cpu")
    q = torch.randn(1, 2, 16, 8)
    assert not preflight(lambda q: flex_attention(q, q, q, block_mask=mask), q, device="cpu")
    scale = {"by": 1.0}

    def changes(q):
        scale["by"] *= 2
        return flex_attention(q, q, q, scale=scale["by"])  # here

    lines = {line for rule, line in rules_at_lines(changes, q) if rule == "frozen number"}
    assert lines == {'return flex_attention(q, q, q, scale=scale["by"])  # here'}
    assert not preflight(lambda x: scan(lambda c, y: (c + y, c * y), x[0], x), X, device="cpu")


def test_a_moved_tensor_has_its_name_and_the_line_that_moved_it():
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))

    @torch.no_grad()
    def step(x):
        y = model(x)
        for parameter in model.parameters():
            parameter.data = parameter.data * 0.9  # moves it
        return y

    moved = [f for f in preflight(step, X.clone(), device="cpu") if f.rule == "moved tensor"]
    assert [finding.line.endswith("# moves it") for finding in moved] == [True]
    assert moved[0].found.startswith("model.0.weight is at another address each time; aten::")


@pytest.mark.parametrize(
    ("step", "advice"),
    [
        (lambda x, n: x[n] * 2, "index_select"),
        (lambda x, n: x.clone().__setitem__(n, 1.0), "index_copy_"),
        (lambda x, n: x[n : n + 1] * 2, "torch.arange(n, device=...) + start"),
        (lambda x, n: x.topk(n), "keep it fixed"),
        (lambda x, n: x * n, "fill_"),
    ],
)
def test_a_number_has_the_advice_of_its_operator(step, advice):
    findings = preflight(step, X.clone(), 1, other_inputs=(X, 2), device="cpu")
    assert any(f.number and f.rule == "frozen number" and advice in f.fix for f in findings)


def test_a_number_is_named_at_each_of_its_lines_but_not_again_in_the_backward_pass():
    keys, values = torch.zeros(8, 4), torch.zeros(8, 4)
    run = SimpleNamespace(at=0)
    weight = torch.ones(4, requires_grad=True)

    def step(x):
        run.at += 1
        keys[run.at] = x[0]
        values[run.at] = x[1]
        (x * weight * run.at).sum().backward()

    lines = {line for rule, line in rules_at_lines(step, X.clone()) if rule == "frozen number"}
    assert lines == {
        "keys[run.at] = x[0]",
        "values[run.at] = x[1]",
        "(x * weight * run.at).sum().backward()",
    }


@pytest.mark.parametrize("capturable", [True, False])
def test_a_rate_that_changes_is_named_whatever_else_the_optimizer_lacks(capturable):
    model = make_model(WIDTHS, device="cpu")
    optimizer = torch.optim.AdamW(model.parameters(), 1.0, capturable=capturable)

    def step(*batch):
        optimizer.param_groups[0]["lr"] *= 0.5
        training_step(model, optimizer, *batch)

    findings = preflight(step, *batches_on("cpu")[0], device="cpu")
    (rate,) = [f for f in findings if f.rule == "frozen number"]
    assert rate.found == "lr of AdamW was 0.25, then 0.125" and "GPU tensor" in rate.fix
    assert ("optimizer" in {f.rule for f in findings}) != capturable


def test_torchs_own_validation_is_named_with_its_file():
    def step(x):
        return torch.distributions.Categorical(logits=x, validate_args=True).sample()

    (finding,) = preflight(step, X.clone(), device="cpu")
    assert finding.rule == "sync" and "validate_args=False" in finding.fix
    assert finding.found.endswith("in torch/distributions/distribution.py")


def test_what_other_inputs_change_is_seen_in_the_inputs():
    def step(x):
        return x * 2

    for other in (X[:2], X.clone().requires_grad_(), X.double()):
        assert rules_at_lines(step, X.clone(), other_inputs=(other,)) == {("inputs", "inputs[0]")}
    assert rules_at_lines(step, X.clone(), other_inputs=(X + 1,)) == set()
    with pytest.raises(ValueError, match="of which there are 1, not 2"):
        rules(step, X.clone(), other_inputs=(X, X))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    "kind, options, rule",
    [
        ("SGD", {"lr": 0.1, "momentum": 0.9}, None),
        ("SGD", {"lr": "tensor", "fused": True}, None),
        ("SGD", {"lr": "tensor"}, "optimizer"),
        ("Adam", {}, "optimizer"),
        ("Adam", {"capturable": True, "amsgrad": True}, None),
        ("RMSprop", {"capturable": True, "centered": True}, None),
        ("AdamW", {"fused": True}, "optimizer"),
        ("AdamW", {"capturable": True, "lr": "tensor"}, None),
    ],
)
def test_optimizers(device, kind, options, rule):
    if device == "cpu" and options == {"lr": "tensor"}:
        pytest.skip("on the CPU it reads no tensor of another device")
    lr = {"lr": torch.tensor(0.01, device=device)} if options.get("lr") == "tensor" else {}
    model = make_model(WIDTHS, device=device)
    optimizer = getattr(torch.optim, kind)(model.parameters(), **(options | lr))
    batches = batches_on(device)
    rows = rules_at_lines(
        partial(training_step, model, optimizer),
        *batches[0],
        other_inputs=batches[1],
        device=device,
    )
    assert rows == ({(rule, "optimizer.step()")} if rule else set())


def test_a_scheduler_wants_a_learning_rate_in_a_tensor():
    model = make_model(WIDTHS, device="cpu")
    optimizer = make_optimizer(model)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    step = partial(training_step, model, optimizer)
    assert rules_at_lines(step, *batches_on("cpu")[0]) == {("frozen number", "optimizer.step()")}

    def scheduled(*batch):
        step(*batch)
        scheduler.step()

    assert ("CPU work", "scheduler.step()") in rules_at_lines(scheduled, *batches_on("cpu")[0])
    assert scheduler.last_epoch == 0 and optimizer.param_groups[0]["lr"] == 0.1


def test_hooks_and_trainable_buffers():
    model = make_model(WIDTHS, device="cpu")
    model.block2.register_forward_hook(lambda *_: None)
    model.head.bias.register_post_accumulate_grad_hook(lambda *_: None)
    model.block1.register_buffer("b", torch.ones(1, requires_grad=True))
    step = partial(training_step, model, make_optimizer(model))
    rows = rules_at_lines(step, *batches_on("cpu")[0])
    assert {rule for rule, _ in rows} == {"hook", "trainable buffer"}
    assert all("model(inputs)" in line for _, line in rows)


def test_a_long_list_in_reach_is_put_back_without_being_watched():
    data = list(range(5000))

    def step(x):
        data[7] += 1
        return x + 0

    assert rules_at_lines(step, X.clone()) == set() and data == list(range(5000))


def test_autocast_outside_of_the_step():
    linear = torch.nn.Linear(4, 4)

    def inside(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return linear(x)

    assert rules_at_lines(inside, X.clone()) == set()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert ("autocast cache", "around the step") in rules_at_lines(linear, X.clone())
    with torch.autocast("cpu", dtype=torch.bfloat16, cache_enabled=False):
        assert rules_at_lines(linear, X.clone()) == set()


def test_an_autograd_graph_that_is_kept_alive_is_named():
    model = make_model(WIDTHS, device="cpu")
    step = partial(training_step, model, make_optimizer(model))
    holder = {"before": [parameter.clone() for parameter in model.parameters()]}
    assert rules_at_lines(step, *batches_on("cpu")[0]) == {("kept graph", "before")}
    holder["before"] = [parameter.detach().clone() for parameter in model.parameters()]
    assert rules_at_lines(step, *batches_on("cpu")[0]) == set()


def test_a_registered_generator_is_no_finding():
    generator = torch.Generator()

    def step(x):
        return x + torch.rand(4, device=x.device, generator=generator)

    assert not preflight(step, X.clone(), generators=[generator], device="cpu")


@needs_gpu
@pytest.mark.parametrize(
    "step, rule",
    [
        (lambda x, host: x + host.cuda(), "copy"),
        (lambda x, host: x.copy_(host), "copy"),
        (lambda x, host: [host.copy_(x), x][1], "copy"),
        (lambda x, host: x + torch.tensor([1.0, 2.0, 3.0, 4.0], device="cuda"), "copy"),
        (lambda x, host: x[[0, 1]], "copy"),
        (lambda x, host: [torch.cuda.synchronize(), x][1], "sync"),
        (lambda x, host: [torch.cuda.current_stream().synchronize(), x][1], "sync"),
        (lambda x, host: [torch.cuda.Event().query(), x][1], "sync"),
        (lambda x, host: [host.sum(), x][1], "CPU work"),
        (lambda x, host: [torch.rand(3), x][1], "CPU random numbers"),
        (lambda x, host: x.add_(x.sum().cpu().item()), "sync"),
    ],
)
def test_a_fault_between_cpu_and_gpu_is_named(step, rule):
    assert rule in rules(step, X.cuda(), X.clone(), device="cuda")


@needs_gpu
@pytest.mark.parametrize("fused", [True, False])
def test_a_scaler_wants_a_fused_optimizer(fused):
    model, scaler = make_model(WIDTHS), torch.amp.GradScaler()
    optimizer = torch.optim.AdamW(model.parameters(), capturable=True, fused=fused)

    def step(x, y):
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16):
            loss = mse_loss(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    assert rules_at_lines(step, *batches_on("cuda")[0], device="cuda") == (
        set() if fused else {("sync", "scaler.step(optimizer)")}
    )
    assert scaler.state_dict()["scale"] == 2.0**16


def test_a_scalar_that_an_operator_of_the_step_made_is_no_number_of_its_own():
    """Such as the seed that attention keeps for its backward pass, on the CPU outside of a
    capture.
    """
    seed, x = torch.tensor(5), torch.empty(2, device="meta")
    add = torch.ops.aten.add.Tensor
    assert cpu_scalar_values(add, [x, seed], set()) == [5]
    assert cpu_scalar_values(add, [x, seed], {storage_address(seed)}) == []
    assert cpu_scalar_values(
        torch.ops.aten.lift_fresh.default, [seed], {storage_address(seed)}
    ) == [5]
