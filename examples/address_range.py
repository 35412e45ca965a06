"""GPU memory that can be given back and taken again at the same addresses, by the CUDA driver.

    memory = AddressRange(n_bytes)
    values = torch.as_tensor(memory, device="cuda")  # uint8
    memory.give_back()  # now values must not be touched: an illegal memory access ends the process
    memory.take()  # the same addresses; what they hold is undefined

The functions of the driver: https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__VA.html
"""

from typing import Any

import torch
from torch import nn

from examples.graph_nodes import ask

ALIGNMENT = 512  # bytes, as PyTorch's own allocator aligns tensors


class AddressRange:
    """Addresses that stay reserved while their memory is given back and taken again."""

    def __init__(self, n_bytes: int) -> None:
        from cuda.bindings import driver

        torch.cuda.synchronize()  # there is a CUDA context from here on
        kinds, flags = driver.CUmemAllocationType, driver.CUmemAccess_flags
        self.properties = driver.CUmemAllocationProp()
        self.properties.type = kinds.CU_MEM_ALLOCATION_TYPE_PINNED  # it does not migrate
        self.properties.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        self.properties.location.id = torch.cuda.current_device()
        self.access = driver.CUmemAccessDesc()
        self.access.location = self.properties.location
        self.access.flags = flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
        smallest = driver.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_MINIMUM
        page = ask("cuMemGetAllocationGranularity", self.properties, smallest)[0]
        self.n_bytes = -(-n_bytes // page) * page  # whole pages
        self.address = int(ask("cuMemAddressReserve", self.n_bytes, 0, 0, 0)[0])
        self.take()

    def take(self) -> None:
        """Put new memory behind the addresses. What it holds is undefined."""
        memory = ask("cuMemCreate", self.n_bytes, self.properties, 0)[0]
        ask("cuMemMap", self.address, self.n_bytes, 0, memory, 0)
        ask("cuMemSetAccess", self.address, self.n_bytes, [self.access], 1)
        ask("cuMemRelease", memory)  # the mapping keeps it

    def give_back(self) -> None:
        """Return the memory to the driver. The addresses stay reserved."""
        torch.cuda.synchronize()
        ask("cuMemUnmap", self.address, self.n_bytes)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        data = (self.address, False)  # not read-only
        return {"version": 3, "data": data, "shape": (self.n_bytes,), "typestr": "|u1"}


def move_weights(model: nn.Module) -> AddressRange:
    """Move a model's parameters into memory that can be given back. Call it before a capture.

    They move over the CPU, so that they are never on the GPU twice.
    """
    sizes = [-(-weight.nbytes // ALIGNMENT) * ALIGNMENT for weight in model.parameters()]
    for weight in model.parameters():
        weight.data = weight.detach().cpu()
    torch.cuda.empty_cache()
    memory = AddressRange(sum(sizes))
    start = 0
    for weight, size in zip(model.parameters(), sizes, strict=True):
        values = torch.as_tensor(memory, device="cuda")[start : start + weight.nbytes]
        values = values.view(weight.dtype).view(weight.shape)
        weight.data = values.copy_(weight.detach())
        start += size
    return memory


def replay_asleep(process: int = 0) -> None:
    """Replay a graph whose weights' memory was given back. Raises torch.AcceleratorError.

    Run it in a process of its own, for CUDA is of no use to a process after that:
    torch.multiprocessing.spawn(replay_asleep). process: its number, which spawn passes.
    """
    layer = nn.Linear(64, 64, device="cuda").requires_grad_(False)
    memory = move_weights(layer)
    inputs = torch.ones(1, 64, device="cuda")
    layer(inputs)  # warm-up
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        layer(inputs)
    graph.replay()
    memory.give_back()
    graph.replay()
    torch.cuda.synchronize()
