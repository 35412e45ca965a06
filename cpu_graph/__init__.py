"""CUDA graphs on a CPU: torch's own names, on a stand-in that knows what they mean.

What a graph is   core, nodes, graphs: operators with the memory they work on, captured and replayed; autograd
The device        device, device_kind, memory, pools, streams, order, generators: one launch at a time
Under torch       torch_names: the block; functions, methods, operators, control_flow, autocast, tables, shapes,
                  trees: what torch's calls do there
Refused           errors: what, and with which words; hints: what it says of a run without an error
"""

from cpu_graph.errors import NotModelled
from cpu_graph.torch_names import cpu_graphs

__all__ = ["NotModelled", "cpu_graphs"]
