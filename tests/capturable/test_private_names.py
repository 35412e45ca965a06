"""Private names of torch in capturable's tables, for when one is gone: its rule would fall silent.

Those in the code are noticed by the steps that the other tests judge.
"""

from pathlib import Path

import pytest
import torch
from torch import nn

from capturable import judge
from capturable.host_calls import TORCHS_OWN
from capturable.rules import LIBRARY
from capturable.user_lines import TORCH, WRAPPERS
from capturable.waiting_operators import WAITING

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
    "name", sorted(set(WAITING) - ELSEWHERE | {f"aten::{name}" for name in judge.SIZED})
)
def test_an_operator_of_the_tables_exists(name):
    assert name.removeprefix("aten::") in ADDED_LATER or hasattr(
        torch.ops.aten, name.removeprefix("aten::")
    )


@pytest.mark.parametrize(
    "name, arguments", [("index_fill", ["value"]), ("segment_reduce", ["unsafe"])]
)
def test_the_arguments_that_the_table_asks_for_exist(name, arguments):
    packet = getattr(torch.ops.aten, name)
    schemas = [getattr(packet, overload)._schema for overload in packet.overloads()]
    names = {argument.name for schema in schemas for argument in schema.arguments}
    assert set(arguments) <= names


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
