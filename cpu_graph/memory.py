"""The stand-in's memory: blocks, and pools that hand a freed block to the next tensor of its size.

A tensor "on the GPU" is a CPU tensor whose storage lies in a block. When its storage is freed, the
block goes back to its pool's list and keeps its content, as with PyTorch's caching allocator. Only
blocks of equal rounded size are handed on; where the real allocator could have split or joined
blocks, what they held is overwritten (see stale), so that nobody reads it and is right by luck.
"""

import ctypes
import weakref
from collections import defaultdict

import torch

POISON = 0xAB  # as floats: tiny negative numbers; see poison
LARGE = 10 * 2**20  # bytes: from here on PyTorch's blocks are segments of their own


class Block:
    """Some memory with a fixed address: kind is "cuda" or "pinned", home its pool, stream and bytes."""

    def __init__(self, kind, home):
        self.kind, self.home, self.bytes = kind, home, torch.empty(home[2], dtype=torch.uint8)
        self.in_graph = self.returned = False  # a graph knows its address; it was given back to the driver
        self.tenant = None  # the capture in which it was last handed out
        self.used_on = set()  # further streams, by record_stream
        self.accesses = {}  # (stream, writes) -> the last launch that did

    def view(self, tensor):
        """The tensor's part of this memory, which does not keep the tensor's storage alive."""
        view = torch.empty(0, dtype=tensor.dtype)
        return view.set_(self.bytes.untyped_storage(), self.offset(tensor), tensor.shape, tensor.stride())

    def offset(self, tensor):
        return tensor.storage_offset()

    def poison(self):
        """Fill it with what nobody can take for a result: NaN in every floating-point type."""
        self.bytes.fill_(0xFF)


class Memory:
    """All blocks by address, and the free ones by home."""

    def __init__(self):
        self.blocks, self.free = {}, defaultdict(list)

    def find(self, tensor):
        """The block that a tensor lies in, or None for ordinary CPU memory."""
        return self.blocks.get(tensor.untyped_storage().data_ptr())

    def take(self, kind, pool, stream, size):
        """A free block of just this size, or None."""
        fitting = self.free[pool, stream, size]
        return next((fitting.pop(i) for i in reversed(range(len(fitting))) if fitting[i].kind == kind), None)

    def make(self, kind, pool, stream, size):
        block = Block(kind, (pool, stream, size))
        self.blocks[block.bytes.data_ptr()] = block
        return block

    def tensor(self, block, shape, stride, dtype):
        """A new tensor in a block; the block is free again when the tensor's storage is."""
        buffer = (ctypes.c_char * block.home[2]).from_address(block.bytes.data_ptr())
        weakref.finalize(buffer, self.give_back, block).atexit = False
        storage = torch.frombuffer(buffer, dtype=torch.uint8).untyped_storage()
        return torch.empty(0, dtype=dtype).set_(storage, 0, shape, stride)

    def give_back(self, block):
        if not block.used_on:
            self.free[block.home].append(block)

    def stale(self, pool, tenant):
        """Free blocks of a pool that hold what a graph may read, and that others may now overwrite."""
        lists = (blocks for home, blocks in self.free.items() if home[0] == pool)
        return [b for blocks in lists for b in blocks if b.in_graph and (tenant is None or b.tenant is not tenant)]

    def empty_cache(self):
        """Give free memory of no private pool back to the driver; small blocks share segments and stay."""
        for block in self.stale(None, None):
            block.poison()
        for home, blocks in self.free.items():
            if home[0] is None and home[2] > LARGE:
                for block in blocks:
                    block.returned = True
                    self.blocks.pop(block.bytes.data_ptr(), None)
                blocks.clear()


def rounded(shape, stride, dtype):
    """Bytes of a block for a tensor: whole units of 512, and of 2 MiB for large ones."""
    last = sum((size - 1) * step for size, step in zip(shape, stride, strict=True)) if 0 not in shape else -1
    unit = 512 if (needed := (last + 1) * dtype.itemsize) < LARGE else 2 * 2**20
    return max(1, -(-needed // unit)) * unit
