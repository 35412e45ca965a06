"""CUDA graphs on a CPU: torch's own names, on a stand-in that knows what they mean.

What a graph is   core, nodes, graphs: operators with the memory they work on, captured and replayed
The device        device, placement, memory, pools, streams, order, generators: one launch at a
                  time, in an order
Under torch       torch_names: the block; functions, methods, operators, shapes, tables, trees: what
                  torch's calls do there; autograd, autocast, callbacks, control_flow, saving: and
                  those of its subsystems
It says           errors: what it refuses, and in which words; hints: what it has noticed; values,
                  warmups: of what a capture keeps, and a warm-up leaves behind; lines: at which
                  line of the program; log: what it has launched; report: all that, at the end
                  history, picture, svg: a drawing of what was captured and replayed
In tests          pytest_cpu_graph: a fixture and a marker for pytest; example: a server's graph
                  runner, tested
The package       setup builds it
"""

from cpu_graph.errors import NotModelled
from cpu_graph.log import on_stand_in
from cpu_graph.torch_names import cpu_graphs

__all__ = ["NotModelled", "cpu_graphs", "on_stand_in"]
