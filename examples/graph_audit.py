"""Which CUDA graphs does a process have, who captured them, and are they replayed?

    audit = GraphAudit()        # before the first capture
    train()                     # your program, with all its libraries
    print(audit.table())        # a row for each graph

It needs torch 2.15, whose global hooks see every graph: your own, those of make_graphed_callables
and of torch.compile. Each launch takes the CPU about a microsecond longer while they are there, so
call stop() before you measure.
"""

import traceback
from collections import Counter
from pathlib import Path

import pandas as pd
import torch
from torch.cuda import graphs

from examples import graph_nodes

LIBRARIES = (str(Path(torch.__file__).parent), __file__)  # frames that are not the program's
GENERATED = "torchinductor"  # in the paths of code that torch.compile writes
COLUMNS = ["code", "nodes", "kernels", "copies, fills", "pool MiB", "replays", "captured at"]


class GraphAudit:
    """Notes each capture and each replay of this process from now on."""

    def __init__(self) -> None:
        self._rows: list[dict] = []
        self._row_of: dict[int, dict] = {}  # by the id of a graph: its last capture
        self._hooks = [
            graphs.register_graph_capture_end_hook(self._note_capture),
            graphs.register_graph_replay_start_hook(self._note_replay),
        ]

    def stop(self) -> None:
        """Remove the hooks; what was noted stays."""
        for hook in self._hooks:
            hook.remove()

    def table(self) -> pd.DataFrame:
        """A row for each capture: the line of code, nodes, kernels, copies and fills, the MiB
        of its pool (graphs can share one), and replays.
        """
        rows = [row | {"pool MiB": _pool_mib(row["pool"])} for row in self._rows]
        return pd.DataFrame(rows, columns=COLUMNS)

    def _note_capture(self, graph: torch.cuda.CUDAGraph) -> None:
        row = _line_of_program() | {"pool": graph.pool(), "replays": 0}
        self._rows.append(row)
        self._row_of[id(graph)] = row
        kinds = Counter(node["kind"] for node in graph_nodes.rows_of(graph))
        row["nodes"] = kinds.total()
        row["kernels"] = kinds["kernel"]
        row["copies, fills"] = kinds["memcpy"] + kinds["memset"]

    def _note_replay(self, graph: torch.cuda.CUDAGraph) -> None:
        row = self._row_of.get(id(graph))
        if row:  # captured since the audit began
            row["replays"] += 1


def _line_of_program() -> dict[str, str]:
    """Where the program, rather than a library, was when it captured."""
    frames = [
        frame
        for frame in traceback.extract_stack()
        if not frame.filename.startswith(LIBRARIES) and GENERATED not in frame.filename
    ]
    if not frames:
        return {"captured at": "", "code": "(a thread of autograd)"}
    frame = frames[-1]
    return {"captured at": f"{frame.filename}:{frame.lineno}", "code": frame.line or ""}


def _pool_mib(pool: tuple[int, int]) -> float:
    """What the caching allocator has reserved for a pool."""
    segments = torch.cuda.memory_snapshot(mempool_id=pool)
    return sum(segment["total_size"] for segment in segments) / 2**20
