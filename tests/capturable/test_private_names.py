"""Names of torch and CPython that capturable relies on and that are no public ones: a test each,
for when one is gone.

The rules would fall silent without an error. On a GPU the tests of real captures see the rest.
"""

import dis
import inspect
import sys
import warnings
from pathlib import Path

import pytest
import torch
from torch import nn

from capturable import judge
from capturable.capture_attempt import Until
from capturable.cpu_as_gpu import DEVICES, MAKERS, MOVERS, capturable_optimizers
from capturable.host_calls import FLEX_UNCOMPILED, SYNC_WARNING, TORCHS_OWN
from capturable.judge import READING_BACKWARD, SIZED
from capturable.rules import LIBRARY
from capturable.user_lines import TORCH, WRAPPERS
from capturable.waiting_operators import WAITING, Call
from tests.support.machine import needs_gpu

ADDED_LATER = {"_linalg_eigvals"}  # not in every torch that is supported
ELSEWHERE = {"torchvision::nms"}


@pytest.mark.parametrize(
    "file", [*(name for name in LIBRARY if name.endswith(".py")), *filter(None, TORCHS_OWN)]
)
def test_a_file_of_torch_that_a_rule_names_is_there(file):
    assert (Path(TORCH) / file).is_file()


@pytest.mark.parametrize("start", [*WRAPPERS, "optim/"])
def test_files_of_torch_begin_so(start):
    folder, _, name = start.rpartition("/")
    assert list((Path(TORCH) / folder).glob(f"{name}*"))


@pytest.mark.parametrize(
    "name", sorted(set(WAITING) - ELSEWHERE | {f"aten::{name}" for name in SIZED})
)
def test_an_operator_of_the_tables_exists(name):
    assert name.removeprefix("aten::") in ADDED_LATER or hasattr(
        torch.ops.aten, name.removeprefix("aten::")
    )


@pytest.mark.parametrize(
    "name, arguments",
    [
        ("histc", ["min", "max"]),
        ("_ctc_loss", ["input_lengths"]),
        ("normal", ["std"]),
        ("masked_fill", ["value"]),
        ("index_fill", ["value"]),
        ("linspace", ["start"]),
        ("isin", ["elements", "test_elements", "assume_unique"]),
        ("segment_reduce", ["unsafe"]),
    ],
)
def test_the_arguments_that_the_table_asks_for_exist(name, arguments):
    packet = getattr(torch.ops.aten, name)
    schemas = [getattr(packet, overload)._schema for overload in packet.overloads()]
    names = {argument.name for schema in schemas for argument in schema.arguments}
    assert set(arguments) <= names


def test_an_argument_has_its_value_or_its_default():
    x = torch.ones(3)
    call = Call(torch.ops.aten.histc.default, (x, 8), {"max": 2})
    found = [call.argument(name) for name in ("self", "bins", "min", "max", "none")]
    assert found == [x, 8, 0, 2, None]


def test_tags_say_what_depends_on_the_data():
    assert torch.Tag.data_dependent_output in torch.ops.aten.equal.default.tags
    assert torch.Tag.dynamic_output_shape in torch.ops.aten.nonzero.default.tags
    assert torch.Tag.nondeterministic_seeded in torch.ops.aten.randn.default.tags


@pytest.mark.parametrize("function", [torch.prod, lambda x: x.prod(0), lambda x: x.cumprod(0)])
def test_backward_nodes_are_called_so_and_can_be_asked_while_they_run(function):
    x = torch.ones(3, requires_grad=True)
    y = function(x)
    seen = []
    y.grad_fn.register_prehook(lambda _: seen.append(torch._C._current_autograd_node().name()))
    y.sum().backward()
    assert seen[0] in READING_BACKWARD
    assert torch._C._current_autograd_node() is None


def test_generators_and_storages_have_an_identity():
    tensor = torch.ones(2)
    assert tensor.untyped_storage()._cdata == tensor[1:].untyped_storage()._cdata
    assert torch.Generator()._cdata != torch.default_generator._cdata
    assert torch._neg_view(tensor).is_neg()


def test_optimizers_ask_which_devices_are_capturable():
    module = sys.modules["torch.optim.optimizer"]
    assert "cpu" not in getattr(module, DEVICES)()
    parameter = nn.Parameter(torch.ones(2))
    optimizer = torch.optim.AdamW([parameter], capturable=True)
    parameter.grad = torch.ones(2)
    with capturable_optimizers():
        optimizer.step()
    assert "cpu" not in getattr(module, DEVICES)() and parameter.ne(1).all()
    with pytest.raises((AssertionError, RuntimeError), match="capturable"):
        optimizer.step()


def test_a_scheduler_marks_its_optimizer():
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], 0.1)
    assert not hasattr(optimizer.step, "_wrapped_by_lr_sched")
    torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    assert hasattr(optimizer.step, "_wrapped_by_lr_sched")


def test_modules_and_parameters_keep_their_hooks_so():
    module = nn.Linear(2, 2)
    assert list(judge.judge_module(module)) == []
    registered = [
        module.register_forward_hook,
        module.register_forward_pre_hook,
        module.register_full_backward_hook,
        module.register_full_backward_pre_hook,
        module.weight.register_hook,
        module.weight.register_post_accumulate_grad_hook,
    ]
    for register in registered:
        handle = register(lambda *_: None)
        assert [fault.rule for fault in judge.judge_module(module)] == ["hook"], register
        handle.remove()


def test_functions_that_stand_in_for_their_cpu_selves_are_called_so():
    seen = []

    class Mode(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            seen.append(func)
            return func(*args, **(kwargs or {}))

    with Mode():
        x = torch.arange(3)
        x[0] = 2
        nn.functional.one_hot(x, 4)
        torch.tensor(2.0)
        x.to("cpu").type_as(x)
    named = {torch.Tensor.__setitem__, nn.functional.one_hot, torch.arange, torch.tensor}
    assert named | {torch.Tensor.to, torch.Tensor.type_as} <= set(seen)
    assert {torch.arange, torch.tensor} <= MAKERS and set(MOVERS) > {torch.Tensor.to}


def test_a_composite_operator_can_be_taken_apart():
    x = torch.ones(2)
    assert torch.ops.aten.is_nonzero.default._can_decompose()
    assert not torch.ops.aten.add.Tensor._can_decompose()
    assert torch.ops.aten.matmul.default.decompose(x, x) == 2


def test_flex_attention_runs_uncompiled_by_this_name():
    from torch.nn.attention import flex_attention

    assert getattr(flex_attention, FLEX_UNCOMPILED) is False


def test_capturing_is_asked_by_this_name():
    asked = torch.cuda.is_current_stream_capturing
    assert asked.__name__ == "is_current_stream_capturing"
    assert sys.modules["torch.cuda.graphs"].is_current_stream_capturing is asked


def test_byte_code_is_called_so():
    def step():
        with torch.no_grad():
            try:
                return len(step.__name__)
            except ValueError:
                return 0

    names = {instruction.opname for instruction in dis.get_instructions(step)}
    assert {"LOAD_GLOBAL", "PUSH_EXC_INFO", "POP_EXCEPT"} <= names
    whole = Until(step)
    whole()
    assert whole.lines and torch.is_grad_enabled() and inspect.iscode(step.__code__)


@needs_gpu
def test_the_warning_of_sync_debug_mode_says_so():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        torch.ones(1, device="cuda").item()
        torch.cuda.set_sync_debug_mode("default")
    assert any(SYNC_WARNING in str(warning.message) for warning in caught)
