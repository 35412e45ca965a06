"""The stand-in for CUDA graphs: true where it answers, and named where it does not."""

import copy
import gc
import json
import pickle
import re

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

from capturable.causes import entries, standard_cause_name
from course.paths import CONFORMANCE, ROOT
from cpu_graph import NotModelled, cpu_graphs
from cpu_graph.core import Graph
from cpu_graph.log import Listener, listening
from helpers.capture import capture_step
from helpers.model import training_step
from tests.cpu_graph.conformance import PROGRAMS, outcome, outcomes
from tests.cpu_graph.conformance.__main__ import all_endings
from tests.cpu_graph.conformance.common import captured
from tests.support.machine import needs_gpu


@pytest.fixture
def gpu():
    with cpu_graphs() as device:
        yield device


def test_the_core_trains():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 1))
    inputs, targets = torch.randn(16, 4), torch.randn(16, 1)

    def losses(model, graphed):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        if not graphed:
            return [training_step(model, optimizer, inputs, targets).item() for _ in range(10)]
        with Graph() as graph:
            loss = training_step(model, optimizer, inputs, targets)
        return [graph.replay() or loss.item() for _ in range(10)]

    twin, state = copy.deepcopy(model), torch.get_rng_state()
    eager = losses(model, graphed=False)
    torch.set_rng_state(state)
    assert losses(twin, graphed=True) == eager


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_ends_as_on_the_gpu(name):
    ending, program = outcome(name), PROGRAMS[name]
    if program.refused:
        assert any(one.startswith("NotModelled") for one in ending["fails"])
        assert program.refused in " ".join(ending["fails"])
        return
    assert outcomes.agrees(program.gives, ending), ending
    expected = recorded()["outcomes"].get(name)
    if expected is None:
        pytest.skip("how it ends on a GPU is not recorded yet")
    # a machine whose cuDNN is older than torch's is no property of the program
    if "cuDNN version incompatibility" not in " ".join(expected.get("fails", [])):
        assert ending == expected


def recorded():
    """What the reference GPU gave, with the newest version of torch that is not newer than this
    one.
    """
    command = "python -m tests.cpu_graph.conformance"
    assert CONFORMANCE.exists(), (
        f"{CONFORMANCE.relative_to(ROOT)} is missing: run `{command}` on an H200."
    )
    versions = {
        tuple(map(int, version.split("."))): found
        for version, found in json.loads(CONFORMANCE.read_text()).items()
    }
    mine = tuple(map(int, torch.__version__.split("+")[0].split(".")))
    return versions[
        max((version for version in versions if version <= mine), default=min(versions))
    ]


@needs_gpu
def test_the_gpu_ends_as_recorded():
    known = recorded()["outcomes"]  # perhaps of programs that are gone, too
    found = all_endings()
    assert found == {name: known.get(name) for name in found}


def test_every_silent_exhibit_is_shown_or_said_not_to_be():
    silent = {entry.title for entry in entries() if entry.exhibit and entry.kind == "silent"}
    shown = {function.shows for function in PROGRAMS.values()} - {None}
    named = re.findall(r"^- \*\*(.+?)\*\*:", (ROOT / "cpu_graph/LIMITS.md").read_text(), re.M)
    titles = {standard_cause_name(entry): entry.title for entry in entries()}
    not_shown = {titles[name] for name in named}
    assert silent <= shown | not_shown and not shown & not_shown
    assert shown <= set(titles.values())


def state_of_torch():
    places = (
        torch,
        torch.cuda,
        torch.cuda.graphs,
        torch.cuda.random,
        torch.accelerator,
        torch._C,
        torch.cuda.graph,
    )
    return [dict(vars(place)) for place in (*places, torch.amp.autocast_mode.autocast)]


def test_everything_is_put_back_also_after_an_error():
    with cpu_graphs():  # the first step and the first capture import what they need
        torch.optim.SGD([nn.Parameter(torch.ones(1))]).step()
        captured(lambda: torch.ones(1, device="cuda"))
    before, random = state_of_torch(), torch.get_rng_state()
    with pytest.raises(torch.AcceleratorError), cpu_graphs():
        x = torch.ones(4, device="cuda")
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            x.sum().item()
    after = state_of_torch()
    assert all(one.keys() == other.keys() for one, other in zip(before, after, strict=True))
    assert all(
        one[name] is other[name] for one, other in zip(before, after, strict=True) for name in one
    )
    assert torch.equal(random, torch.get_rng_state())
    assert x.device.type == "cpu" and x.sum().item() == 4
    with cpu_graphs(), pytest.raises(RuntimeError, match="does not nest"), cpu_graphs():
        pass


def test_tensors_say_that_they_are_on_a_gpu(gpu):
    x, host = torch.ones(4, device="cuda"), torch.ones(4)
    here = [x, x[:2], x + 1, 2 * x, x.half(), x.detach(), x.clone(), x.new_zeros(2), host.to(x)]
    here += [torch.ones_like(x), torch.tensor([1.0], device="cuda"), copy.deepcopy(x)]
    here += [nn.Parameter(x), nn.Linear(2, 2, device="cuda").weight, x + torch.tensor(1.0)]
    for tensor in here:
        assert tensor.is_cuda and tensor.device == torch.device("cuda:0") and not tensor.is_cpu
    for tensor in [host, x.cpu(), x.to("cpu"), torch.zeros_like(x, device="cpu"), host + 1]:
        assert not tensor.is_cuda and tensor.device.type == "cpu"
    assert repr(x) == "tensor([1., 1., 1., 1.], device='cuda:0')" and f"{x[0]:.1f}" == "1.0"
    assert x.tolist() == [1, 1, 1, 1] and torch.get_default_dtype() is torch.float32


def green_context(**sizes):
    return torch.cuda.green_contexts.GreenContext.create(**sizes)


since_2_15 = pytest.mark.skipif(torch.__version__ < "2.15", reason="since torch 2.15")


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("torch.cuda.memory_allocated", lambda x: torch.cuda.memory_allocated()),
        ("torch.cuda.get_device_properties", lambda x: torch.cuda.get_device_properties(0)),
        (
            "elapsed_time",
            lambda x: torch.cuda.Event(enable_timing=True).elapsed_time(torch.cuda.Event()),
        ),
        ("query", lambda x: torch.cuda.current_stream().query()),
        ("resize_", lambda x: x.resize_(100)),
        ("debug_dump", lambda x: torch.cuda.CUDAGraph().debug_dump("file")),
        ("torch.compile", lambda x: torch.compile(torch.neg)(x)),
        ("torch.compile", lambda x: torch.compile(fullgraph=True)(torch.neg)(x)),
        ("torch.compile", lambda x: torch.compile(nn.ReLU())),
        ("Generator.clone_state", lambda x: torch.Generator("cuda").clone_state()),
        ("_record_memory_history", lambda x: torch.cuda.memory._record_memory_history()),
        ("UntypedStorage.resize_", lambda x: x.untyped_storage().resize_(0)),
        ("graphsafe_get_state", lambda x: torch.cuda.default_generators[0].graphsafe_get_state()),
        ("Moving a lazy layer", lambda x: nn.LazyLinear(2).cuda()(x)),
        pytest.param("accelerator.Graph", lambda x: torch.accelerator.Graph(), marks=since_2_15),
        pytest.param("green_contexts", lambda x: green_context(num_sms=8), marks=since_2_15),
    ],
)
def test_what_it_does_not_model_it_names(gpu, name, call):
    with pytest.raises(NotModelled, match=re.escape(name)):
        call(torch.ones(4, device="cuda"))


def test_memory_given_back_to_the_driver_is_gone(gpu):
    inputs = torch.ones(2**22, device="cuda")
    replay = captured(lambda inputs=inputs: inputs[0] * 2)
    replay.__defaults__ = None
    del inputs
    torch.cuda.empty_cache()
    with pytest.raises(torch.AcceleratorError, match="an illegal memory access was encountered"):
        replay()


def test_freed_memory_that_another_size_may_have_taken_is_overwritten(gpu):
    inputs = [torch.ones(1000, device="cuda")]
    replay = captured(lambda: inputs.pop() * 2)
    assert replay()[0] == 2
    torch.ones(2000, device="cuda")
    assert replay()[0].isnan()


def test_memory_handed_on_again_does_not_reach_into_what_came_in_between(gpu):
    freed = [torch.ones(1000, device="cuda")]
    captured(lambda: freed.pop() * 2)()
    alive = torch.ones(2000, device="cuda")  # a real allocator might have cut it out of the freed
    later = torch.ones(1000, device="cuda")  # but not out of what is handed on now
    replay = captured(lambda: later.add_(1))
    assert replay()[0] == 2 and alive.sum() == 2000


def test_a_result_is_not_there_before_the_first_replay(gpu):
    x = torch.ones(4, device="cuda")
    replay = captured(lambda: x * 2)
    assert captured(lambda: x * 3).output.isnan().all() and replay()[0] == 2


def test_a_backward_pass_on_another_stream_is_waited_for(gpu):
    side, weight = torch.cuda.Stream(), torch.ones(4, device="cuda", requires_grad=True)
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        loss = (weight * 3).sum()
    loss.backward()  # runs on the side stream
    assert weight.grad.tolist() == [3, 3, 3, 3]


def test_record_stream_keeps_memory_from_the_next_tensor(gpu):
    def second_is_first(record):
        x = torch.ones(1000, device="cuda")
        address = x.data_ptr()
        if record:
            x.record_stream(torch.cuda.Stream())
        del x
        return torch.ones(1000, device="cuda").data_ptr() == address

    assert second_is_first(record=False) and not second_is_first(record=True)


def test_a_pinned_batch_stays_until_its_copy_is_done(gpu):
    loader = DataLoader(
        range(5), None, collate_fn=lambda number: torch.full((3,), number), pin_memory=True
    )
    batches = [batch.to("cuda", non_blocking=True) for batch in loader]
    assert [batch[0].item() for batch in batches] == [0, 1, 2, 3, 4]
    address = torch.empty(3, pin_memory=True).data_ptr()
    assert torch.empty(3, pin_memory=True).data_ptr() == address  # nothing is copied from it


@pytest.mark.parametrize("events", [False, True])
def test_nothing_is_kept_of_replays_that_are_done(gpu, events):
    x, ping = torch.ones(4, device="cuda"), torch.cuda.Event()
    replay = captured(lambda: x * 2 + 1)

    def most_kept(replays):
        most = 0
        for _ in range(replays):
            ping.wait() if events else None
            replay()
            ping.record() if events else None
            order = gpu.order
            kept = order.log, order.before, *order.clocks.values(), replay.graph.last[1]
            most = max(most, *map(len, (*kept, ping.clock or ())))
        return most

    assert most_kept(600) == most_kept(600)


def test_a_result_that_another_graph_wrote_over_is_noticed(gpu):
    pool, x = torch.cuda.graph_pool_handle(), torch.ones(2**22, device="cuda")
    large = captured(lambda: (x * 2).sum(), pool=pool)
    small = captured(lambda: x[: 2**21] * 3, pool=pool)
    small()
    assert large() == 2**23 and gpu.hints == []
    assert small().isfinite().all() and gpu.hints == []
    large()
    assert small.output.isnan().all()
    (hint,) = gpu.hints
    assert "a result of graph" in hint and "was overwritten by a replay of graph" in hint


def test_a_result_that_a_later_graph_has_taken_is_noticed(gpu):
    pool, x = torch.cuda.graph_pool_handle(), torch.ones(2**20, device="cuda")
    results = []
    first = captured(lambda: results.append(x * 2), pool=pool)
    second = captured(lambda: results[0] + 1, pool=pool)
    results.clear()
    third = captured(lambda: x * 100, pool=pool)
    for replay in (first, second):
        replay()
    assert gpu.hints == []
    for replay in (first, third, second):
        replay()
    (hint,) = gpu.hints
    assert "reads a result of graph" in hint and "overwritten by graph" in hint


def test_a_failure_of_its_own_is_not_modelled(gpu, monkeypatch):
    def broken(*_):
        raise KeyError("a mistake")

    x = torch.ones(4, device="cuda")
    monkeypatch.setattr("cpu_graph.operators.host_waits", broken)
    with pytest.raises(NotModelled, match=r"aten::mul.*a mistake"):
        x * 2


def test_an_operators_own_error_is_not_wrapped(gpu):
    x = torch.ones(2, 4, device="cuda")
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied") as eager:
        x @ x
    with pytest.raises(RuntimeError) as inside:
        captured(lambda: x @ x)
    assert type(eager.value) is RuntimeError and not isinstance(inside.value, NotModelled)


def test_an_index_out_of_bounds_is_an_assertion_of_the_device(gpu):
    table, index = torch.ones(4, 2, device="cuda"), torch.zeros(3, dtype=torch.long, device="cuda")
    replay = captured(lambda: nn.functional.embedding(index, table))
    index.fill_(9)
    with pytest.raises(torch.AcceleratorError, match="device-side assert triggered"):
        replay()


@pytest.mark.parametrize("thing", [torch.cuda.CUDAGraph, torch.cuda.Stream, torch.cuda.Event])
def test_an_attribute_that_is_not_modelled_can_be_asked_for(gpu, thing):
    made = getattr(torch.cuda, thing.__name__)()
    assert not hasattr(made, "nonsense") and getattr(made, "nonsense", 7) == 7
    with pytest.raises(AttributeError, match="nonsense"):
        _ = made.nonsense


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_grouped_products_read_their_ends_on_the_gpu_in_bfloat16_alone(gpu, dtype):
    x, up = torch.ones(6, 16, device="cuda").to(dtype), torch.ones(2, 16, 16, device="cuda")
    ends = torch.tensor([2, 6], dtype=torch.int32, device="cuda")

    def capture():
        return capture_step(lambda: nn.functional.grouped_mm(x, up.to(dtype), offs=ends))

    if dtype is torch.bfloat16:
        assert torch.equal(capture()(), torch.full_like(x, 16))
        return
    with pytest.raises(RuntimeError, match="during CUDA graph capture") as refused:
        capture()
    assert not isinstance(refused.value, NotModelled)


def test_a_name_that_a_gpu_has_is_there_and_refuses_when_it_is_called(gpu):
    event = torch.cuda.Event()
    assert hasattr(event, "cuda_event")
    with pytest.raises(NotModelled, match="ipc_handle"):
        assert not event.ipc_handle
    assert not hasattr(torch.cuda.CUDAGraph(keep_graph=True), "keep_graph")
    assert repr(torch.ones(2, 0, device="cuda")) == "tensor([], device='cuda:0', size=(2, 0))"
    with pytest.raises(NotModelled, match="priorities of streams"):
        torch.cuda.Stream.priority_range()
    with pytest.raises(NotModelled, match="std of whole numbers"):
        torch.arange(3, device="cuda").std()


def test_a_tensor_shows_its_device_before_its_type_and_what_autograd_knows(gpu):
    half = torch.ones(2, device="cuda").half()
    assert repr(half) == "tensor([1., 1.], device='cuda:0', dtype=torch.float16)"
    weight = torch.ones(2, device="cuda", requires_grad=True)
    assert repr(weight) == "tensor([1., 1.], device='cuda:0', requires_grad=True)"


def test_which_of_several_freed_segments_is_next_is_not_guessed(gpu):
    pool = torch.cuda.graph_pool_handle()
    large, small = torch.ones(2**22, device="cuda"), torch.ones(2**21, device="cuda")
    first = captured(lambda: ((large * 2) + 1).sum(), pool=pool)
    second = captured(lambda: small * 3, pool=pool)
    result = second()
    assert result.data_ptr() not in (large.data_ptr(), small.data_ptr())  # both are alive
    with pytest.raises(NotModelled, match="freed block"):
        result.data_ptr() % 16
    first()
    with pytest.raises(NotModelled, match="freed blocks of the pool"):
        result.sum()


def test_autocast_is_the_cpus_again_after_the_block():
    x = torch.ones(4, dtype=torch.bfloat16)
    with cpu_graphs(), torch.autocast("cuda", torch.bfloat16):
        assert x.cuda().sum().dtype is torch.float32
    with torch.autocast("cpu", torch.bfloat16):
        assert x.sum().dtype is torch.bfloat16


@pytest.mark.parametrize("where", [None, "cpu"])
def test_a_saved_tensor_comes_back_where_it_was(gpu, where, tmp_path):
    weights = {"a": torch.arange(6.0, device="cuda").view(2, 3).T, "b": torch.ones(2)}
    torch.save(weights, tmp_path / "weights.pt")
    back = torch.load(tmp_path / "weights.pt", map_location=where)
    assert back["a"].is_cuda == (where is None) and not back["b"].is_cuda
    assert torch.equal(back["a"].cpu(), weights["a"].cpu())
    assert pickle.loads(pickle.dumps(weights["a"])).is_cuda


def test_the_storage_of_a_tensor_can_be_kept_and_put_back(gpu):
    x = torch.arange(8.0, device="cuda")
    kept = x.untyped_storage().clone()
    assert kept.device.type == "cuda" and kept.nbytes() == 32
    x.mul_(2)
    on_cpu = torch.UntypedStorage(32).copy_(x.untyped_storage())
    x.untyped_storage().copy_(kept)
    assert x.tolist() == list(range(8))
    x.untyped_storage().copy_(on_cpu)
    assert x.tolist() == list(range(0, 16, 2))


def test_only_the_programs_tensors_lie_on_the_device(gpu):
    """Nobody finds memory that is free, or what a graph holds, among the objects that are alive."""
    x = torch.ones(4, device="cuda")
    replay = captured(lambda: x * 2 + 1)
    torch.ones(1000, device="cuda").add_(1)  # and free
    things = [thing for thing in gc.get_objects() if type(thing) is torch.Tensor]
    addresses = {block.address for block in gpu.memory.blocks.values()}
    found = {thing.untyped_storage().data_ptr() for thing in things} & addresses
    result = replay.output
    assert found == {x.untyped_storage().data_ptr(), result.untyped_storage().data_ptr()}


@pytest.mark.parametrize("dropout", [nn.functional.dropout, lambda x: torch.dropout(x, 0.5, True)])
def test_dropout_of_whole_numbers_is_refused_in_a_gpus_words(gpu, dropout):
    numbers = torch.arange(4, device="cuda")
    with pytest.raises(NotImplementedError, match="\"fused_dropout\" not implemented for 'Long'"):
        dropout(numbers)
    assert nn.functional.dropout(numbers, training=False).device.type == "cuda"
    assert dropout(torch.ones(4, device="cuda")).device.type == "cuda"


def test_a_packed_sequence_keeps_its_batch_sizes_on_the_cpu(gpu):
    x = torch.arange(20.0, device="cuda").reshape(5, 2, 2).requires_grad_()
    lengths = torch.tensor([5, 3])
    packed = nn.utils.rnn.pack_padded_sequence(x, lengths)
    assert packed.data.is_cuda and packed.batch_sizes.is_cpu
    assert packed.batch_sizes.tolist() == [2, 2, 2, 1, 1] and packed.data.shape == (8, 2)
    padded, same_lengths = nn.utils.rnn.pad_packed_sequence(packed)
    assert padded.is_cuda and same_lengths.is_cpu and same_lengths.tolist() == [5, 3]
    padded.sum().backward()
    assert x.grad.sum() == 16 and x.grad[3:, 1].sum() == 0
    with pytest.raises(RuntimeError, match="1D CPU int64 tensor, but got 1D cuda:0 Long tensor"):
        nn.utils.rnn.pack_padded_sequence(x, lengths.cuda())


@pytest.mark.parametrize("batch_first", [False, True])
def test_a_packed_sequence_is_captured_with_the_lengths_of_the_capture(gpu, batch_first):
    x, lengths = torch.ones(4, 4, 3, device="cuda"), torch.tensor([4, 3, 1, 1])
    for turn in range(2):
        replay = captured(
            lambda: nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first).data * 2
        )
        x.copy_(torch.arange(48.0).reshape(4, 4, 3))
        expected = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first).data * 2
        lengths.copy_(torch.tensor([2, 2, 1, 1]))  # of the next capture: no replay asks
        assert replay().tolist() == expected.tolist()
        assert len(expected) == (9, 6)[turn]


@pytest.mark.parametrize("quantile", [torch.quantile, torch.nanquantile])
def test_a_quantile_in_a_capture_reads_no_value(gpu, quantile):
    """torch asks on the CPU alone whether q lies between 0 and 1."""
    x = torch.arange(5.0, device="cuda")
    replay = captured(lambda: quantile(x, 0.5))
    x.add_(1)
    assert replay().item() == 3
    with pytest.raises(RuntimeError, match="in the range"):
        quantile(torch.arange(5.0), 1.5)


def test_a_capture_that_never_began_is_not_ended(gpu):
    graph = torch.cuda.CUDAGraph()
    with pytest.raises(RuntimeError, match="before capture_begin|operation cannot be performed"):
        graph.capture_end()
    torch.cuda.set_stream(torch.cuda.Stream())
    with pytest.raises(RuntimeError, match="before capture_begin|same stream it began on"):
        graph.capture_end()


class Heard(Listener):
    def __init__(self):
        self.said = []

    def recorded(self, capture, node):
        self.said.append("recorded")

    def launched(self, nodes, graph):
        self.said.append("replay" if graph else nodes[0].operator.name())

    def waited(self):
        self.said.append("waited")


def test_a_listener_hears_captures_launches_and_waits(gpu):
    x = torch.ones(3, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph), listening(heard := Heard()):
        y = x + 1
    with listening(heard):
        graph.replay()
        y.tolist()
    graph.replay()
    assert heard.said == ["recorded", "replay", "aten::clone", "waited"]


def test_a_tensor_of_numbers_on_the_gpu_waits_for_each(gpu):
    numbers = list(torch.ones(3, device="cuda"))
    with listening(heard := Heard()):
        assert torch.tensor(numbers).tolist() == [1, 1, 1]
    assert heard.said.count("waited") == 3


def test_a_list_of_pinned_memory_is_read_before_a_copy_that_nobody_waits_for(gpu):
    pinned, x = torch.zeros(3, pin_memory=True), torch.ones(3, device="cuda")
    pinned.copy_(x, non_blocking=True)
    assert pinned.tolist() == [0, 0, 0] and [finding.kind for finding in gpu.findings] == ["race"]
    torch.cuda.synchronize()
    assert pinned.tolist() == [1, 1, 1]


def test_empty_holds_what_its_memory_held(gpu):
    assert torch.empty(3, device="cuda").isnan().all()
    torch.ones(3, device="cuda")
    assert torch.empty(3, device="cuda").tolist() == [1, 1, 1]
