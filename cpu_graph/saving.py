"""torch.save and torch.load: a tensor of the stand-in's memory is saved, and comes back, as a CUDA
tensor.
"""

from contextlib import contextmanager

import torch
from torch import serialization


@contextmanager
def register_cuda_locations(device):
    """Let torch tag storages in the stand-in's memory with "cuda:0", and bring such storages back
    there.
    """

    def tag(storage):
        block = device.memory.blocks.get(storage.data_ptr())
        return "cuda:0" if block is not None and block.kind == "cuda" else None

    def restored(storage, location):
        if not location.startswith("cuda"):
            return None
        tensor = device.allocate((storage.nbytes(),), (1,), torch.uint8)
        tensor.untyped_storage().copy_(storage)
        return tensor.untyped_storage()

    before = list(serialization._package_registry)
    serialization.register_package(0, tag, restored)  # before torch's own
    try:
        yield
    finally:
        serialization._package_registry[:] = before
