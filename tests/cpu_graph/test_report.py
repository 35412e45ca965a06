"""What `python -m cpu_graph run` and the plugin say of a program: each fault, and nothing else."""

import functools
import sys
import threading
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
from torch import nn

import cpu_graph
from cpu_graph import cpu_graphs, on_stand_in
from cpu_graph.__main__ import main
from cpu_graph.report import Report
from helpers.capture import capture_step, unchanged
from tests.cpu_graph.conformance.common import captured
from tests.support.processes import run_python


def side_by_side(waits):
    """Two streams share a scratch tensor; both orders of the two give the right results."""
    scratch, results = torch.zeros(4, device="cuda"), []
    streams = [torch.cuda.Stream() for _ in range(2)]
    for value, stream in enumerate(streams):
        stream.wait_stream(torch.cuda.current_stream())
        if waits:
            stream.wait_stream(streams[0])
        with torch.cuda.stream(stream):
            scratch.fill_(value)
            results.append(scratch.clone())
    torch.cuda.synchronize()


def branches(joined):
    """Two branches of one capture share a scratch tensor."""
    scratch, other = torch.zeros(4, device="cuda"), torch.cuda.Stream()

    def work():
        main = torch.cuda.current_stream()
        if not joined:
            other.wait_stream(main)
        scratch.fill_(1)
        if joined:
            other.wait_stream(main)
        with torch.cuda.stream(other):
            scratch.add_(1)
        main.wait_stream(other)

    captured(work)()


def pinned(waits):
    """The CPU writes into pinned memory from which a copy may still read."""
    landing, there = torch.zeros(4).pin_memory(), torch.zeros(4, device="cuda")
    there.copy_(landing, non_blocking=True)
    if waits:
        torch.cuda.synchronize()
    landing.fill_(1)


def default_stream(used):
    """A launch on the default stream during a capture, on what the graph reads or on another."""
    x, other = torch.zeros(4, device="cuda"), torch.zeros(4, device="cuda")

    def work():
        with torch.cuda.stream(torch.cuda.default_stream()):
            (x if used else other).add_(1)
        return x * 2

    captured(work)()


class Step:
    weight = 1.0

    def __call__(self, x):
        return x * self.weight


class Exploration:
    """Its rate becomes smaller with each step; the steps are counted."""

    epsilon, steps = 1.0, 0

    def __call__(self, x):
        self.steps += 1
        self.epsilon = max(0.1, self.epsilon * 0.5)
        return x * self.epsilon


def a_rate_of_the_steps_own(changes):
    step, x = Exploration(), torch.ones(4, device="cuda")
    replay = captured(lambda: step(x))
    for _ in range(2):
        replay()
        setattr(step, changes, getattr(step, changes) / 2)


def one_graph_for_each(forgotten):
    """A graph for each value of an attribute, and one value without a graph."""
    step, x = Step(), torch.ones(4, device="cuda")
    graphs = {}
    for step.weight in (1.0, 2.0):
        graphs[step.weight] = captured(lambda: step(x))
    step.weight = 3.0 if forgotten else 1.0
    graphs[1.0]()


def rate(kind):
    """A learning rate that a scheduler changes: a number, on the CPU, or on the GPU."""
    weight = nn.Parameter(torch.ones(4, device="cuda"))
    lr = {"number": 0.1, "cpu": torch.tensor(0.1), "cuda": torch.tensor(0.1, device="cuda")}[kind]
    optimizer = torch.optim.Adam([weight], lr=lr, capturable=True, fused=kind == "cpu")
    weight.grad = torch.ones_like(weight)
    optimizer.step()
    replay = captured(optimizer.step)
    if kind == "number":
        optimizer.param_groups[0]["lr"] = 0.2
    else:
        optimizer.param_groups[0]["lr"].fill_(0.2)
    replay()


def warm_up(kind):
    """Three steps before the capture: on one batch, restored, or on three batches."""
    model, static = nn.Linear(4, 4).cuda(), torch.zeros(8, 4, device="cuda")
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def step():
        optimizer.zero_grad(set_to_none=False)
        model(static).square().mean().backward()
        optimizer.step()

    for _ in range(3 * (kind == "real batches")):
        static.normal_()
        step()
    with unchanged(model) if kind == "restored" else nullcontext():
        replay = capture_step(step, warmup=3 * (kind != "real batches"))
    replay()


def statistics(of):
    """Three calls of a BatchNorm before its capture."""
    norm, x = nn.BatchNorm1d(4).cuda().train(of == "training"), torch.ones(8, 4, device="cuda")
    with torch.no_grad():
        for _ in range(3):
            norm(x)
        captured(lambda: norm(x))()


def lazily_scaled(kind):
    """A GradScaler makes its scale in the first step of the warm-up; a scheduler changes a rate."""
    norm, static = nn.BatchNorm1d(4).cuda(), torch.ones(8, 4, device="cuda")
    scaler, rate = torch.amp.GradScaler("cuda"), torch.ones((), device="cuda")

    def step():
        scaler.scale(norm(static).square().mean() * rate).backward()
        norm.zero_grad()

    with unchanged(norm) if kind == "restored" else nullcontext():
        for _ in range(3):
            step()
            if kind == "a rate that changes":
                rate.mul_(0.5)
        replay = captured(step)
    replay()


def with_a_constant(batch):
    """A module has a buffer that never changes; the step draws its batch, or has a static one."""
    model, static = nn.Linear(4, 4).cuda(), torch.ones(8, 4, device="cuda")
    model.register_buffer("scale", torch.ones(4, device="cuda"))

    def step():
        model.zero_grad()
        x = torch.randn(8, 4, device="cuda") if batch == "drawn" else static
        model(x * model.scale).square().mean().backward()
        with torch.no_grad():
            model.weight.sub_(model.weight.grad)

    for _ in range(3):
        step()
    captured(step)()


def micro_batches(zeroed):
    """Each replay adds the gradients of a micro-batch; the optimizer's step is eager, or a graph
    of its own that sets them to zero behind it."""
    model, x = nn.Linear(4, 4).cuda(), torch.ones(2, 4, device="cuda")
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    model(x).sum().backward()
    model.zero_grad(set_to_none=False)
    replay = captured(lambda: model(x).sum().backward())
    zero = captured(lambda: model.zero_grad(set_to_none=False))
    for _ in range(2):
        replay()
        replay()
        if zeroed != "never: the sum is the result":
            optimizer.step()
        if zeroed == "by a graph":
            zero()
        elif zeroed == "eagerly":
            model.zero_grad(set_to_none=False)


def two_sums(zeroed):
    """Two graphs add to gradients, those of one are never set to zero; those of the other are,
    or zero_grad() takes them away."""
    models = [nn.Linear(4, 4).cuda() for _ in range(2)]
    x, replays = torch.ones(2, 4, device="cuda"), []
    for model in models:
        model(x).sum().backward()
        model.zero_grad(set_to_none=False)
        replays.append(captured(lambda model=model: model(x).sum().backward()))
    for _ in range(2):
        for replay, model in zip(replays, models, strict=True):
            replay()
            torch.optim.SGD(model.parameters(), 0.1).step()
        models[0].zero_grad(set_to_none=False)
        if zeroed == "both":
            models[1].zero_grad(set_to_none=False)


def eager_steps(zeroed):
    """The optimizer's step and zero_grad() stand outside of the graph of a backward pass."""
    weight, x = torch.ones(4, device="cuda", requires_grad=True), torch.ones(4, device="cuda")
    if zeroed.endswith("there before"):
        weight.grad = torch.zeros_like(weight)
    optimizer = torch.optim.SGD([weight], 0.1)
    replay = captured(lambda: (weight * x).sum().backward())
    for _ in range(2):
        replay()
        optimizer.step()
        optimizer.zero_grad(set_to_none=zeroed.startswith("to None"))
    optimizer.step()  # nothing was replayed since


def through_another_network(whose):
    """A loss of one network goes through another one, which has gradients and is trained."""
    actor, critic = nn.Linear(4, 4).cuda(), nn.Linear(4, 1).cuda()
    x = torch.ones(2, 4, device="cuda")
    critic(x).sum().backward()
    replay = captured(lambda: critic(actor(x)).sum().backward(inputs=whose and [actor.weight]))
    for _ in range(2):
        replay()
        torch.optim.SGD(critic.parameters(), 0.1).step()


def freed_twice(gone):
    """Memory that is free at the first replay, and somebody else's at the second."""
    x = [torch.ones(4, device="cuda")]
    replay = captured(lambda: x[0] * 2)
    if gone:
        x.clear()
    replay()
    other = torch.ones(4, device="cuda")
    replay()
    assert other.shape == (4,)


def cached_workspace(use):
    """A library makes its workspace at its first call, which is captured, and keeps it."""

    @functools.lru_cache
    def workspace():
        return torch.zeros(4, device="cuda") if use.startswith("counter") else empty()

    def empty():
        return torch.empty(4, device="cuda")

    x = torch.ones(4, device="cuda")
    if use.endswith("made before"):
        workspace()
    replay = captured(lambda: workspace().copy_(x).sum())
    if use.startswith("read before"):
        workspace().sum().item()
    replay()
    if use.startswith("counter"):
        workspace().add_(1)
    elif use.startswith("filled"):
        workspace().fill_(7)
    if use == "filled anew, read at once":
        workspace().sum()
    replay()
    if use == "filled anew":
        workspace().fill_(7)
    workspace().sum()


def used_before_the_first_replay(by):
    """What a capture has made is copied and put back, or a result of it is used."""
    x = torch.ones(4, device="cuda")
    replay = captured(lambda: x * 2)
    saved = replay.output.clone()
    if by == "the CPU":
        (saved + 1).sum().item()
    elif by == "the program's own tensor":
        x.add_(saved)
    elif by == "another graph":
        other = saved + 1
        captured(lambda: other * 2)()
    replay.output.copy_(saved)
    replay()
    replay.output.tolist()


def in_pieces(runs):
    """A function between two graphs runs during the capture, on what nobody has computed yet, and
    before each replay of the second one, or not."""
    x, cache = torch.ones(4, device="cuda"), torch.zeros(8, 4, device="cuda")

    def outside(y):
        cache[0] = y
        return cache[0] + 1

    first = captured(lambda: x * 2)
    between = outside(first.output)
    second = captured(lambda: between * 2)
    first()
    if runs:
        between.copy_(outside(first.output))
    second()
    second.output.tolist()


def static_input_of_the_capture(gradients):
    """A static input that is made in the capture, and written before each replay; or gradients,
    which are made there and set to zero by the program in between."""
    weight, made = torch.ones(4, device="cuda", requires_grad=True), []

    def work():
        made.append(torch.empty(4, device="cuda"))
        (made[0] * weight[:2].sum()).sum().backward()

    replay = captured(work)
    for _ in range(2):
        made[0].fill_(1)
        replay()
        if gradients:
            weight.grad.clone()
            weight.grad.zero_()
    return made[0]


def graphed_micro_batches(kind):
    """Two backward passes of a graphed module add up; the first one's gradient is the graph's own
    memory, or the program's."""
    model, x = nn.Linear(4, 4).cuda(), torch.ones(2, 4, device="cuda")
    graphed = torch.cuda.make_graphed_callables(model, (x,))
    if kind == "a gradient of its own":
        model.weight.grad, model.bias.grad = map(torch.zeros_like, (model.weight, model.bias))
    for _ in range(2):
        if kind == "one at a time":
            model.zero_grad(set_to_none=True)
        graphed(x).sum().backward()


def result_of_another_pool(producer):
    """A graph reads a result of another graph's pool whose tensor nobody holds: that pool alone
    hands it on, for as long as its graph lives."""
    x, graphs = torch.ones(4, device="cuda"), [torch.cuda.CUDAGraph() for _ in range(2)]
    with torch.cuda.graph(graphs[0]):
        result = x * 2
    with torch.cuda.graph(graphs[1]):
        result = result + 1
    graphs[0].replay()
    if producer == "is gone":
        del graphs[0]
    graphs[-1].replay()


def graphed_twice(twice):
    model, x = nn.Linear(4, 4).cuda(), torch.ones(2, 4, device="cuda")
    for _ in range(1 + twice):
        torch.cuda.make_graphed_callables(model, (x,))


PROGRAMS = [  # what is told of a program, and its argument then; and one with which it is right
    ("race", side_by_side, False, True),
    ("race", branches, False, True),
    ("race", pinned, False, True),
    ("outside of the graph", default_stream, True, False),
    ("value of the capture", one_graph_for_each, True, False),
    ("value of the capture", a_rate_of_the_steps_own, "epsilon", "steps"),
    ("value of the capture", rate, "number", "cuda"),
    ("value of the capture", rate, "cpu", "cuda"),
    ("warm-up", warm_up, "one batch", "restored"),
    ("warm-up", warm_up, "one batch", "real batches"),
    ("warm-up", statistics, "training", "evaluation"),
    ("warm-up", lazily_scaled, "on one batch", "restored"),
    ("warm-up", lazily_scaled, "on one batch", "a rate that changes"),
    ("warm-up", with_a_constant, "static", "drawn"),
    ("gradients added", micro_batches, "", "by a graph"),
    ("gradients added", micro_batches, "", "eagerly"),
    ("gradients added", micro_batches, "", "never: the sum is the result"),
    ("gradients added", two_sums, "one", "both"),
    ("gradients added", through_another_network, None, "the actor's"),
    ("gradients lost", eager_steps, "to None", "in place"),
    ("memory gone", freed_twice, True, False),
    ("replay in a capture", graphed_twice, True, False),
    ("memory gone", result_of_another_pool, "is gone", "is there"),
    ("gradient overwritten", graphed_micro_batches, "", "a gradient of its own"),
    ("gradient overwritten", graphed_micro_batches, "", "one at a time"),
    ("made in the capture", cached_workspace, "filled", "filled, made before"),
    ("made in the capture", cached_workspace, "counter", "counter, made before"),
    ("not computed yet", used_before_the_first_replay, "the CPU", "nobody"),
    ("not computed yet", used_before_the_first_replay, "the program's own tensor", "nobody"),
    ("not computed yet", used_before_the_first_replay, "another graph", "nobody"),
    ("not computed yet", in_pieces, False, True),
    ("not computed yet", cached_workspace, "read before", "read before, made before"),
    ("made in the capture", cached_workspace, "filled", "filled anew"),
    ("made in the capture", cached_workspace, "filled", "filled anew, read at once"),
]


@pytest.mark.parametrize(("kind", "program", "wrong", "right"), PROGRAMS)
def test_a_fault_is_told_and_its_repair_is_not(kind, program, wrong, right):
    for argument, expected in ((wrong, {kind}), (right, set())):
        with cpu_graphs() as device:
            try:
                program(argument)
            except torch.AcceleratorError:
                assert kind == "replay in a capture"
        assert {finding.kind for finding in device.findings} == expected, device.hints
        assert kind != "memory gone" or len(device.findings) == len(expected), "told once"


def test_gradients_that_zero_grad_takes_from_an_adding_graph_are_lost():
    with cpu_graphs() as device:
        eager_steps("to None, there before")
    assert [finding.kind for finding in device.findings] == ["memory gone", "gradients lost"]


def test_gradients_that_are_lost_take_back_nothing_of_another_graph():
    with cpu_graphs() as device:
        micro_batches("")
        eager_steps("to None")
    assert [finding.kind for finding in device.findings] == ["gradients added", "gradients lost"]


def test_gradients_that_replays_do_not_add_up_are_a_remark():
    with cpu_graphs() as device:
        weight = torch.ones(4, device="cuda", requires_grad=True)
        replay = captured(lambda: weight.sum().backward())
        replay()
        replay()
        torch.optim.SGD([weight], 0.1).step()
    assert device.findings == []
    assert "each writes the gradients anew" in str(Report.of(device))


def test_a_graph_that_updates_its_own_weights_leaves_no_gradients_behind():
    with cpu_graphs() as device:
        weight = torch.ones(4, device="cuda", requires_grad=True)
        optimizer = torch.optim.SGD([weight], 0.1)

        def step():
            optimizer.zero_grad()
            weight.sum().backward()
            optimizer.step()

        replay = captured(step)
        replay()
        replay()
        step()
    assert device.findings == []
    assert "writes the gradients anew" not in str(Report.of(device))


@pytest.mark.parametrize("gradients", [False, True])
def test_what_a_capture_makes_may_be_written_for_it(gradients):
    with cpu_graphs() as device:
        made = static_input_of_the_capture(gradients)
        assert made.tolist() == [1, 1, 1, 1], "torch.empty launches nothing that a replay repeats"
    assert device.findings == []


def test_a_race_is_told_with_both_launches_their_lines_and_the_tensor():
    with cpu_graphs() as device:
        side_by_side(waits=False)
    (hint, *_) = device.hints
    for part in ("aten::fill_.Scalar at test_report.py", "aten::clone at test_report.py", "(4,)"):
        assert part in " ".join(device.hints)
    assert "stream" in hint and "nothing orders" in hint


def test_a_race_of_two_tensors_that_had_the_same_memory_is_told_as_such():
    with cpu_graphs() as device:
        x, pool = torch.ones(4, device="cuda"), torch.cuda.graph_pool_handle()
        replays = [captured(lambda: (x * 2 + 1).sum(), pool=pool) for _ in range(2)]
        sides = [torch.cuda.Stream() for _ in replays]
        for replay, side in zip(replays, sides, strict=True):
            with torch.cuda.stream(side):
                replay()
    assert device.hints and all("a tensor of shape (4,) and of a later" in h for h in device.hints)


def test_the_report_counts_graphs_by_their_line():
    with cpu_graphs() as device:
        x = torch.ones(4, device="cuda")
        replays = [captured(lambda: x * 2 + 1) for _ in range(3)]
        replays[0]()
        replays[0]()
        report = str(Report.of(device))
    assert [record.replays for record in device.captures] == [2, 0, 0]
    assert "3 captured, 2 replays" in report and "2 launches per replay" in report
    assert "2 of them never replayed" in report and "Not looked at: time" in report


@pytest.mark.parametrize("restored", [False, True])
def test_random_numbers_of_a_warm_up_are_a_remark_until_the_state_is_set(restored):
    with cpu_graphs() as device:
        x, state = torch.ones(4, device="cuda"), torch.cuda.get_rng_state()
        torch.dropout(x, 0.5, True)
        replay = captured(lambda: torch.dropout(x, 0.5, True))
        if restored:  # behind the capture is early enough
            torch.cuda.set_rng_state(state)
        replay()
    assert ("the random state was not set" in str(Report.of(device))) != restored


def test_another_thread_has_a_stream_of_its_own_and_finds_the_stand_in():
    found = []
    assert on_stand_in() is None
    with cpu_graphs() as device, torch.cuda.stream(torch.cuda.Stream()):
        worker = threading.Thread(
            target=lambda: found.append((on_stand_in(), torch.cuda.current_stream().stream_id))
        )
        worker.start()
        worker.join()
    assert found == [(device, 0)]


SCRIPT = """
import sys
import torch
x = torch.ones(4, device="cuda")
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    y = x * 2
if "wrong" in sys.argv:
    del x
graph.replay()
if "status" in sys.argv:
    sys.exit(3)
if "error" in sys.argv:
    torch.ones(4, device="cuda").view(3)
print(__name__, sys.argv[1:])
"""
ENDS = {"right": 0, "wrong": 1, "status": 3, "error": 1}


@pytest.mark.parametrize("argument", ENDS)
def test_a_program_runs_as_it_is_and_its_status_comes_through(
    argument, tmp_path, monkeypatch, capsys
):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    monkeypatch.setattr(sys, "argv", sys.argv)
    monkeypatch.setattr(sys, "path", [*sys.path])
    assert main(["run", str(script), argument]) == ENDS[argument]
    out, said = capsys.readouterr()
    assert ", captured at train.py:6: 1 launches per replay, 1 replays" in said
    assert ("memory gone: " in said) == (argument == "wrong")
    assert ("RuntimeError: shape '[3]' is invalid" in said) == (argument == "error")
    assert f"{Path(cpu_graph.__file__).parent}/" not in said
    assert (f"__main__ ['{argument}']" in out) == (argument in ("right", "wrong"))


def test_a_file_that_is_not_there_is_one_sentence():
    ended = run_python("-m", "cpu_graph", "run", "nowhere.py")
    assert ended.returncode == 2 and "nowhere.py is not a file." in ended.stderr
    assert "Traceback" not in ended.stderr
