"""transformers' Trainer, with each training step in one CUDA graph; it needs accelerate too.

    python graphed_trainer.py    trains with and without the graph, and compares the logged losses

Copy GraphedTrainer. A number marks each line that the graph needs. All batches have one shape.
"""

import os
from tempfile import mkdtemp

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LambdaLR
from transformers import LlamaConfig, LlamaForCausalLM, PrinterCallback, Trainer, TrainingArguments

WARMUP = 3  # steps
LEARNING_RATE = 1e-3
LAYERS, WIDTH = 6, 384
BATCH_SIZE, LENGTH = 16, 256


class GraphedTrainer(Trainer):
    """Runs three training steps eagerly, captures the next one, and replays it from then on."""

    calls = 0

    def training_step(
        self, model: nn.Module, inputs: dict, num_items_in_batch: Tensor | None = None
    ) -> Tensor:
        """Train on one batch, the update included, and return its loss."""
        batch = dict(inputs, num_items_in_batch=num_items_in_batch)
        if self.calls == 0:
            self.graph = torch.cuda.CUDAGraph()
            self.static = {name: tensor.clone() for name, tensor in batch.items()}
        for name, tensor in self.static.items():
            tensor.copy_(batch[name], non_blocking=True)  # 1

        self.calls += 1
        if self.calls <= WARMUP:  # 2
            return self._warm_up(model)
        if self.calls == WARMUP + 1:  # thread_local: a loader with workers may run meanwhile
            with torch.cuda.graph(self.graph, capture_error_mode="thread_local"):
                self.loss = self._whole_step(model)
        self.graph.replay()
        return self.loss.clone()

    def _warm_up(self, model: nn.Module) -> Tensor:
        side_stream = torch.cuda.Stream()
        side_stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side_stream):
            loss = self._whole_step(model)
        torch.cuda.current_stream().wait_stream(side_stream)
        return loss

    def _whole_step(self, model: nn.Module) -> Tensor:
        model.train()
        inputs = dict(self.static)
        count = inputs.pop("num_items_in_batch")
        loss = self.compute_loss(model, inputs, num_items_in_batch=count)
        self.accelerator.backward(loss)
        nn.utils.clip_grad_norm_(model.parameters(), self.args.max_grad_norm)  # 3
        self.optimizer.step()
        self.optimizer.zero_grad()  # 4. so that the Trainer's optimizer.step() updates nothing
        return loss.detach()


class LambdaLRWithoutSync(LambdaLR):
    """LambdaLR whose last rate is a number: the Trainer reads it after each step."""

    def get_last_lr(self) -> list[float]:
        """The rates, without a wait for the GPU."""
        return [LEARNING_RATE * factor(self.last_epoch) for factor in self.lr_lambdas]


def train(trainer_class: type[Trainer], steps: int = 30) -> list[float]:
    """Train by a Trainer; return the logged losses, each the mean of ten steps."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=64,
        hidden_size=WIDTH,
        intermediate_size=4 * WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=6,
        attention_dropout=0.1,
    )
    model = LlamaForCausalLM(config).cuda()
    lr = torch.tensor(LEARNING_RATE, device="cuda")  # 5
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, fused=True, capturable=True)  # 6
    scheduler = LambdaLRWithoutSync(optimizer, lambda step: 0.99**step)

    texts = torch.randint(config.vocab_size, (16 * BATCH_SIZE + 2, LENGTH))
    arguments = TrainingArguments(
        mkdtemp(),
        max_steps=steps,
        per_device_train_batch_size=BATCH_SIZE,
        dataloader_drop_last=True,  # 7
        logging_steps=10,
        logging_nan_inf_filter=False,  # it reads each loss
        accelerator_config={"non_blocking": True},  # the copy of a batch does not wait either
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
    )
    data = [{"input_ids": text, "labels": text} for text in texts]
    trainer = trainer_class(model, arguments, train_dataset=data, optimizers=(optimizer, scheduler))
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


if __name__ == "__main__":
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    torch.use_deterministic_algorithms(True)  # for the comparison only
    losses = train(GraphedTrainer)
    equal = losses == train(Trainer)
    print(f"{len(losses)} logged losses, equal to the plain Trainer's: {equal}")
