"""Lightning, with each training step in one CUDA graph.

    python -m examples.graphed_lightning    with and without the graph, compares the losses

Copy what GraphedModule adds to your module; the GPT here is that of train_gpt.py. A number marks
each line that the graph needs. All batches have one shape.
"""

import os

import pytorch_lightning as L
import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import ExponentialLR
from torch.utils.data import DataLoader

from examples.train_gpt import GPT, GPTConfig, loss_of

WARMUP = 3  # steps
VOCAB_SIZE = 64
BATCH_SIZE, LENGTH = 16, 256


class Module(L.LightningModule):
    """A GPT, as one writes it for Lightning; batches are tokens (BATCH_SIZE, LENGTH + 1)."""

    def __init__(self) -> None:
        super().__init__()
        self.model = GPT(GPTConfig(VOCAB_SIZE))
        self.losses: list[Tensor] = []

    def loss_of(self, batch: Tensor) -> Tensor:
        """The mean next-token loss of a batch."""
        return loss_of(self.model, batch)

    def training_step(self, batch: Tensor, batch_index: int) -> Tensor:
        """The loss, with which Lightning does the rest."""
        loss = self.loss_of(batch)
        self.losses.append(loss.detach())
        return loss

    def configure_optimizers(self) -> tuple[list, list]:
        """AdamW, and a scheduler that steps after each batch."""
        lr = torch.tensor(1e-3, device="cuda")  # 1
        optimizer = torch.optim.AdamW(self.parameters(), lr=lr, fused=True, capturable=True)  # 2
        return [optimizer], [{"scheduler": ExponentialLR(optimizer, 0.99), "interval": "step"}]


class GraphedModule(Module):
    """Runs three training steps eagerly, captures the next one, and replays it from then on."""

    calls = 0

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False  # 3

    def training_step(self, batch: Tensor, batch_index: int) -> None:
        """Train on one batch, the update included."""
        self.losses.append(self._run_graphed_step(batch))
        self.optimizers().step()  # 4. updates nothing, but Lightning counts its steps by it
        self.lr_schedulers().step()  # 5

    def _run_graphed_step(self, batch: Tensor) -> Tensor:
        if self.calls == 0:
            self.graph = torch.cuda.CUDAGraph()
            self.static_batch = batch.clone()
        self.static_batch.copy_(batch, non_blocking=True)  # 6

        self.calls += 1
        if self.calls <= WARMUP:  # 7
            return self._warm_up()
        if self.calls == WARMUP + 1:  # thread_local: a loader with workers may run meanwhile
            with torch.cuda.graph(self.graph, capture_error_mode="thread_local"):
                self.static_loss = self._whole_step()
        self.graph.replay()
        return self.static_loss.clone()  # 8

    def _warm_up(self) -> Tensor:
        side_stream = torch.cuda.Stream()
        side_stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side_stream):
            loss = self._whole_step()
        torch.cuda.current_stream().wait_stream(side_stream)
        return loss

    def _whole_step(self) -> Tensor:
        optimizer = self.optimizers(use_pl_optimizer=False)
        loss = self.loss_of(self.static_batch)
        loss.backward()
        nn.utils.clip_grad_norm_(self.parameters(), max_norm=1.0)
        optimizer.step()
        optimizer.zero_grad()  # 9. so that the step after the graph updates nothing
        return loss.detach()


def train(
    module_class: type[Module], steps: int = 30, gradient_clip_val: float | None = None
) -> list[float]:
    """The losses of a training."""
    torch.manual_seed(0)
    data = torch.randint(VOCAB_SIZE, (16 * BATCH_SIZE + 2, LENGTH + 1))
    loader = DataLoader(data, batch_size=BATCH_SIZE, drop_last=True, pin_memory=True)  # 10
    quiet = ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary")
    module = module_class()
    trainer = L.Trainer(
        max_steps=steps,
        gradient_clip_val=gradient_clip_val,
        accelerator="gpu",
        devices=1,
        **dict.fromkeys(quiet, False),
    )
    trainer.fit(module, loader)
    return torch.stack(module.losses).tolist()


if __name__ == "__main__":
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    torch.use_deterministic_algorithms(True)  # for the comparison only
    losses = train(GraphedModule)
    equal = losses == train(Module, gradient_clip_val=1.0)
    print(f"{len(losses)} losses, equal to those without the graph: {equal}")
