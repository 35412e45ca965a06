"""CUDA graphs on a CPU: torch's own names, on a stand-in that knows what they mean."""

from cpu_graph.errors import NotModelled
from cpu_graph.patches import cpu_graphs

__all__ = ["NotModelled", "cpu_graphs"]
