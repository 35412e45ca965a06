"""The stand-in's memory: blocks, and pools that hand a freed block to the next tensor of its size.

A tensor "on the GPU" is a CPU tensor whose storage lies in a block. When its storage is freed, the
block goes back to its pool's list and keeps its content, as with PyTorch's caching allocator. Only
blocks of equal rounded size are handed on; where the real allocator could have split or joined
blocks, what they held is overwritten with NaN, so that nobody is right by luck.
"""

import ctypes
import weakref
from collections import defaultdict
from functools import lru_cache
from itertools import count

import torch
from torch._C._functorch import get_unwrapped, is_functorch_wrapped_tensor
from torch.nn.parameter import UninitializedTensorMixin  # type: ignore[attr-defined]

from cpu_graph.errors import NotModelled, out_of_memory
from cpu_graph.order import HOST

SMALL = 2**20  # bytes: up to here blocks share segments of 2 MiB
LARGE = 10 * 2**20  # bytes: from here on PyTorch's blocks are segments of their own


class Block:
    """Some memory with a fixed address; its home is its kind ("cuda" or "pinned"), pool, stream and
    size.
    """

    numbers = count(1)

    def __init__(self, home):
        self.number = next(self.numbers)
        self.kind = home[0]
        self.home = home
        try:
            self.buffer = aligned_buffer(home[3])
        except MemoryError:
            raise out_of_memory(home[3]) from None
        self.storage = torch.frombuffer(self.buffer, dtype=torch.uint8).untyped_storage()
        self.bytes.fill_(0xFF)  # NaN, as floating-point numbers
        self.in_graph = False  # a graph knows its address
        self.returned = False  # the driver has it back
        self.used_elsewhere = False  # on other streams, as record_stream says
        self.tenant = None  # the capture that it was last handed to
        self.generation = 0  # how many tensors it has been handed to
        self.free = False  # no tensor lies in it
        # newer block of another size that a real allocator might have cut out of it -> how many
        # tensors it had been handed to by then: those of later on lie elsewhere
        self.overlaps = {}
        self.unknown_address = False  # a real allocator might have laid it into an older block
        self.hosts = 0  # how many older blocks are segments of their own that might hold it
        # the number of the graph that wrote over it from such an older block
        self.overwritten = None
        self.last_graph = None  # the number of the graph that last wrote to it
        self.writer = None  # the stream that last wrote to it
        self.use = None  # what eager launches did there, see warmups
        # the capture that made what is there, or its original, and no replay
        self.uncomputed = None
        self.unread = None  # the eager launch that wrote to it last, and that nobody has read
        self.lost = None  # such a launch, and the graph that has written over it
        self.accesses = {}  # (stream, writes, first byte, end): the last launch that did

    @property
    def bytes(self):
        """The memory as a tensor, made anew each time: the program could find one that is kept
        among the objects that are alive, where a GPU has none for memory that is free.
        """
        return torch.frombuffer(self.buffer, dtype=torch.uint8)

    @property
    def address(self):
        return ctypes.addressof(self.buffer)


class Place:
    """Where a tensor lies; keeps the block, but not the tensor's storage."""

    __slots__ = "block", "conjugate", "dtype", "generation", "negative", "where"

    def __init__(self, block, tensor):
        self.block = block
        self.generation = block.generation
        self.dtype = tensor.dtype
        self.where = tensor.storage_offset(), tensor.shape, tensor.stride()
        self.conjugate = tensor.is_conj()
        self.negative = tensor.is_neg()

    def view(self):
        """The tensor's memory."""
        view = torch.empty(0, dtype=self.dtype).set_(self.block.storage, *self.where)
        return with_lazy_bits(view, self.conjugate, self.negative)


def with_lazy_bits(view, conjugate, negative):
    """A view with a lazy conjugate and a lazy sign, if they are asked for."""
    if conjugate:
        view = torch._conj(view)
    return torch._neg_view(view) if negative else view


class Memory:
    """All blocks by address, and the free ones by home."""

    def __init__(self):
        self.blocks = {}
        self.free = defaultdict(list)
        self.deferred = []

    def find(self, tensor):
        """The block that a tensor lies in, or None for ordinary CPU memory."""
        if tensor.layout is not torch.strided:
            return None
        if is_functorch_wrapped_tensor(tensor):
            return self.find(get_unwrapped(tensor))
        if isinstance(tensor, UninitializedTensorMixin):  # which refuses to say where it is
            with torch._C.DisableTorchFunction():
                return self.blocks.get(tensor.untyped_storage().data_ptr())
        return self.blocks.get(tensor.untyped_storage().data_ptr())

    def span(self, tensor):
        """The tensor's block, its first byte there and its end; None for ordinary CPU memory."""
        block, start = self.find(tensor), tensor.storage_offset() * tensor.itemsize
        return block and (block, start, start + extent(tensor.shape, tensor.stride(), tensor.dtype))

    def take_free_block(self, home):
        """A free block of a home, or None."""
        if not self.free[home]:
            return None
        block = min(self.free[home], key=lambda one: one.number)  # as the lowest address
        self.free[home].remove(block)
        return block

    def make(self, home):
        block = Block(home)
        self.blocks[block.address] = block
        return block

    def tensor(self, block, shape, stride, dtype):
        """A new tensor in a block; the block is free again when the tensor's storage is."""
        size = max(1, extent(shape, stride, dtype))  # a storage of what it needs, as on a GPU
        buffer = (ctypes.c_char * size).from_address(block.address)
        weakref.finalize(buffer, self.give_back, block).atexit = False
        block.generation += 1
        block.free = False
        block.overwritten = block.unread = block.lost = block.uncomputed = None
        storage = torch.frombuffer(buffer, dtype=torch.uint8).untyped_storage()
        return torch.empty(0, dtype=dtype).set_(storage, 0, shape, stride)

    def give_back(self, block):
        block.free = True
        if block.kind == "pinned" and block.tenant and block.in_graph:
            return  # pinned in a capture that reads it: never handed on
        copied = block.kind == "pinned" and any(stream != HOST for stream, *_ in block.accesses)
        (self.deferred if block.used_elsewhere or copied else self.free[block.home]).append(block)

    def finished(self):
        """The device is idle: what record_stream or a copy from pinned memory held back is free."""
        for block in self.deferred:
            block.used_elsewhere = False
            self.free[block.home].append(block)
        self.deferred.clear()

    def is_free_address(self, address):
        """Whether an address lies in a block that no tensor lies in."""
        return any(
            block.free and 0 <= address - block.address < block.home[3]
            for block in self.blocks.values()
        )

    def stale_blocks(self, pool, capture, size=None):
        """A pool's free blocks whose content a graph may still read, other than this capture's own.

        size: only those that a real allocator might split or join for a block of this many bytes.
        """
        homes = [home for home in self.free if home[1] == pool and home[0] == "cuda"]
        known = (block for home in homes for block in self.free[home] if block.in_graph)
        others = [block for block in known if capture is None or block.tenant is not capture]
        return [block for block in others if size is None or may_reuse_segment(block.home[3], size)]

    def empty_cache(self):
        """Give free memory outside private pools back to the driver. Small blocks share segments:
        they stay.
        """
        for block in self.stale_blocks(None, None):
            block.bytes.fill_(0xFF)
        for home in [home for home in self.free if home[1] is None and home[3] > LARGE]:
            for block in self.free.pop(home):
                block.returned = True
                self.blocks.pop(block.address)


class UnknownAddress:
    """Where a tensor lies that might lie in a freed block of another size.

    While it is alive its address is no other living tensor's: that can be asked, and nothing else.
    """

    def __init__(self, memory, block, number):
        self.memory = memory
        self.block = block
        self.generation = block.generation
        self.number = number

    def is_alive(self):
        return not self.block.free and self.block.generation == self.generation

    def __eq__(self, other):
        number, alive = other, True
        if isinstance(other, UnknownAddress):
            number, alive = other.number, other.is_alive()
        if alive and self.is_alive() and not self.memory.is_free_address(number):
            return self.number == number
        return self._refuse()

    def _refuse(self, *_):
        raise NotModelled(
            "The address of a tensor that may lie in a freed block of another size is not modelled."
        )

    __hash__ = __int__ = __index__ = __str__ = __repr__ = __format__ = _refuse  # type: ignore[assignment]
    __lt__ = __le__ = __gt__ = __ge__ = __mod__ = __floordiv__ = __and__ = _refuse
    __add__ = __radd__ = __sub__ = __rsub__ = _refuse


def aligned_buffer(size):
    """A buffer at an address that is a multiple of 512, as all of a GPU's are."""
    raw = bytearray(size + 512)
    start = -ctypes.addressof(ctypes.c_char.from_buffer(raw)) % 512
    return (ctypes.c_char * size).from_buffer(raw, start)


def may_reuse_segment(old, new):
    """Whether PyTorch's allocator might lay a new block where a freed one of another size was."""
    if (old <= SMALL) != (new <= SMALL):
        return False  # small blocks have segments of their own
    return old > new or new <= LARGE


def rounded(shape, stride, dtype):
    """Bytes of a block for a tensor: whole units of 512, or of 2 MiB for a large one."""
    needed = extent(shape, stride, dtype)
    unit = 2 * 2**20 if needed > LARGE else 512
    return max(1, -(-needed // unit)) * unit


@lru_cache(4096)
def extent(shape, stride, dtype):
    """Bytes from a tensor's first element to the end of its last."""
    if 0 in shape:
        return 0
    last = sum((size - 1) * step for size, step in zip(shape, stride, strict=True))
    return (last + 1) * dtype.itemsize
