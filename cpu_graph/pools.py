"""Pools that user code holds: torch.cuda.MemPool."""

from contextlib import contextmanager
from itertools import count

from cpu_graph.errors import MissingAttribute, NotModelled

ids = count(1)  # a graph's own pool is (n, 0), one with a handle (0, n)


class MemPool:
    """torch.cuda.MemPool: the name of a pool, for captures and for use_mem_pool."""

    stand_in = None  # the device of the stand-in in force

    def __init__(self, allocator=None, use_on_oom=False, no_split=False):
        if allocator is not None:
            raise NotModelled("An allocator of one's own for torch.cuda.MemPool is not modelled.")
        self.id = 0, next(ids)

    def __getattr__(self, name):
        raise MissingAttribute(f"MemPool.{name} is not modelled.")


@contextmanager
def use_mem_pool(pool, device=None):
    """torch.cuda.use_mem_pool: eager tensors of the block come from the pool."""
    stand_in = MemPool.stand_in
    if stand_in.capture:
        raise NotModelled("torch.cuda.use_mem_pool in a capture is not modelled.")
    stand_in.pools.append(pool.id)
    try:
        yield
    finally:
        stand_in.pools.pop()
