"""A small graph runner, as a server has one: a graph for each batch size, requests padded to the
next.
"""

from collections.abc import Callable

import torch


class GraphRunner:
    """Runs a model on batches of up to the largest size, each by the replay of a graph.

    model: maps a tensor of shape (batch, features) to a tensor whose first dimension is the batch.
    sizes: the batch sizes to capture; features: the width of a request, a number of floats.
    """

    def __init__(self, model: Callable, sizes: list[int], features: int):
        self.model = model
        self.pool = torch.cuda.graph_pool_handle()
        self.graphs = {}
        self.outputs = {}
        self.inputs = torch.zeros(max(sizes), features, device="cuda")
        # the largest first: the others fit into its memory
        for size in sorted(sizes, reverse=True):
            self._capture(size)

    @torch.inference_mode()
    def _capture(self, size: int) -> None:
        static = self.inputs[:size]
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            self.model(static)  # libraries are set up before the capture
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self.pool):
            output = self.model(static)
        self.graphs[size] = graph
        self.outputs[size] = output

    @torch.inference_mode()
    def __call__(self, batch: torch.Tensor) -> torch.Tensor:
        """The model's output for a batch, to keep. ValueError if the batch is too large."""
        rows = len(batch)
        size = min((size for size in self.graphs if size >= rows), default=None)
        if size is None:
            raise ValueError(f"A batch of {rows} is larger than every captured size.")
        self.inputs[:rows].copy_(batch)
        self.inputs[rows:size].zero_()
        self.graphs[size].replay()
        return self.outputs[size][:rows].clone()
