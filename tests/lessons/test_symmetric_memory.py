"""The private module of torch that Split a decoder over two GPUs uses is still as tried."""

import inspect

import pytest
import torch
import torch.distributed as dist


@pytest.mark.skipif(not dist.is_available(), reason="a torch without torch.distributed")
def test_symmetric_memory_is_where_the_lesson_expects_it():
    import torch.distributed._symmetric_memory as symm_mem

    assert callable(symm_mem.empty)
    assert list(inspect.signature(symm_mem.rendezvous).parameters) == ["tensor", "group"]


def test_the_one_shot_all_reduce_takes_a_buffer_and_an_input():
    schema = torch.ops.symm_mem.one_shot_all_reduce_copy.default._schema
    names = [argument.name for argument in schema.arguments]
    assert names == ["symm_buffer", "local_input", "reduce_op", "group_name"]
