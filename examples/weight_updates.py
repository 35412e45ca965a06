"""An engine replays a CUDA graph, and a trainer in another process sends it new weights.

    python examples/weight_updates.py

Both processes use one GPU. The queue passes handles of the trainer's tensors (CUDA IPC), not copies
of them. It needs a CUDA GPU and nothing but PyTorch. Numbered lines keep the graph's weights right.
"""

from multiprocessing.queues import Queue

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def build_model() -> nn.Module:
    """Yours."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10)).cuda()


def layouts(model: nn.Module) -> dict[str, tuple]:
    """Where each parameter and buffer is stored, and how."""
    named = [*model.named_parameters(), *model.named_buffers()]
    return {name: (t.data_ptr(), t.dtype, t.shape, t.stride()) for name, t in named}


class Engine:
    """Predicts by replays of one graph; update is the only method that changes its weights."""

    def __init__(self, model: nn.Module, sample: Tensor) -> None:
        self.model = model.requires_grad_(False)
        self.static_input = sample.clone()
        side_stream = torch.cuda.Stream()
        side_stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side_stream):
            model(self.static_input)  # the warm-up
        torch.cuda.current_stream().wait_stream(side_stream)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.static_output = model(self.static_input)
        self.captured = layouts(model)

    def predict(self, inputs: Tensor) -> Tensor:
        """The model's output for inputs of the sample's shape."""
        self.static_input.copy_(inputs)
        self.graph.replay()
        return self.static_output.clone()

    def update(self, weights: dict[str, Tensor]) -> None:
        """Copy a state_dict into the tensors that the graph reads. Raises RuntimeError if it
        would not read them."""
        self.model.load_state_dict(weights)  # 1. in place: no assign=True
        # Make copies of weights (fused, quantized) again here, in place.
        now = layouts(self.model)
        replaced = [name for name in self.captured if now.get(name) != self.captured[name]]
        if replaced:  # 2. something else than update has replaced a tensor
            raise RuntimeError(f"{replaced[0]} was replaced: the graph reads the captured tensor.")
        torch.cuda.synchronize()  # 3. the copies are done before the trainer goes on


def run_trainer(batches: Queue, updates: Queue) -> None:
    """The trainer: a step on each batch, and its weights into updates, until a batch is None."""
    model = build_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    while (batch := batches.get()) is not None:
        inputs, targets = (tensor.cuda() for tensor in batch)
        optimizer.zero_grad()
        F.cross_entropy(model(inputs), targets).backward()
        optimizer.step()
        outputs = model(inputs).detach()
        torch.cuda.synchronize()  # 4. the weights are complete before they are sent
        updates.put((model.state_dict(), outputs))


def main() -> None:
    """Send three batches, take the weights after each, and compare the outputs."""
    context = torch.multiprocessing.get_context("spawn")
    batches, updates = context.Queue(), context.Queue()
    trainer = context.Process(target=run_trainer, args=(batches, updates), daemon=True)
    trainer.start()
    engine = Engine(build_model(), torch.zeros(32, 64, device="cuda"))
    for number in range(3):
        inputs, targets = torch.randn(32, 64), torch.randint(10, (32,))
        batches.put((inputs, targets))
        weights, expected = updates.get(timeout=120)
        engine.update(weights)
        same = torch.equal(engine.predict(inputs.cuda()), expected)
        print(f"update {number}: equal to the trainer's outputs: {same}")
    del weights, expected  # 5. memory of the trainer, which ends now
    batches.put(None)
    trainer.join()


if __name__ == "__main__":
    main()
