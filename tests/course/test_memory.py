from functools import partial
from types import SimpleNamespace

import torch

from course.memory import free_gpu_memory, holds_gpu


def itself():
    """A closure that holds itself, and a list that does."""
    items = []
    items.append(items)

    def step():
        return step, items

    return step


def deleted():
    """A closure whose variable has no value any more."""
    value = 1

    def step():
        return value  # noqa: F821

    del value
    return step


def test_tensors_are_found_in_lists_dicts_partials_and_closures():
    tensor = torch.ones(1)

    def closure():
        return tensor

    containers = ([1, [tensor]], {"a": (tensor,)}, SimpleNamespace(t=tensor))
    functions = (closure, partial(print, tensor))
    for value in (tensor, torch.nn.Linear(1, 1), *containers, *functions):
        assert holds_gpu(value)
    assert not holds_gpu(itself())
    assert not holds_gpu(deleted())
    for value in (1, "x", [1.0], {"a": None}, print, lambda: 1, torch):
        assert not holds_gpu(value)


def test_the_notebook_forgets_what_holds_memory_and_keeps_its_numbers(shell):
    cell = "import torch\nmodel = torch.nn.Linear(2, 2)\nlosses = [0.5]\ndef step(): return model"
    shell.run_cell(cell).raise_error()
    free_gpu_memory()
    assert "model" not in shell.user_ns
    assert shell.user_ns["losses"] == [0.5] and "step" in shell.user_ns and "torch" in shell.user_ns
