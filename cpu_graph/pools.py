"""Pools that user code holds: torch.cuda.MemPool."""

from itertools import count

from cpu_graph.errors import MissingAttribute, NotModelled

ids = count(1)  # a graph's own pool is (n, 0), one with a handle (0, n)


class MemPool:
    """torch.cuda.MemPool: the name of a pool, for captures."""

    def __init__(self, allocator=None, use_on_oom=False, no_split=False):
        if allocator is not None:
            raise NotModelled("An allocator of one's own for torch.cuda.MemPool is not modelled.")
        self.id = 0, next(ids)

    def __getattr__(self, name):
        raise MissingAttribute(f"MemPool.{name} is not modelled.")
