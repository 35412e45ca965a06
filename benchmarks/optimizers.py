"""Which optimizers and schedulers of PyTorch a graph gets right:  python -m benchmarks.optimizers

Prints the two tables of docs/optimizers.md. It needs a CUDA GPU and takes about ten seconds.
"""

import sys
import warnings
from collections.abc import Callable
from functools import partial
from inspect import signature

import pandas as pd
import torch
from torch import Tensor
from torch.nn.functional import mse_loss
from torch.optim import lr_scheduler

from helpers.capture import capture_step
from helpers.model import make_batches, make_model

WIDTHS = (64, 64, 64)
OPTIMIZERS = (
    *("ASGD", "Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax"),
    *("LBFGS", "Muon", "NAdam", "RAdam", "RMSprop", "Rprop", "SGD"),
)
SETTINGS: dict[str, dict] = {  # a learning rate here becomes a tensor on the GPU
    "none": {},
    "tensor": {"lr": 0.01},
    "tensor, fused": {"lr": 0.01, "fused": True},
    "capturable": {"capturable": True},
    "capt., tensor": {"lr": 0.01, "capturable": True},
    "all three": {"lr": 0.01, "capturable": True, "fused": True},
}
halve_lr = partial(lr_scheduler.LambdaLR, lr_lambda=lambda step: 0.5**step)
SCHEDULERS = {
    "LambdaLR": halve_lr,
    "CosineAnnealingLR": partial(lr_scheduler.CosineAnnealingLR, T_max=10),
    "OneCycleLR": partial(lr_scheduler.OneCycleLR, max_lr=1.0, total_steps=10),
    "ReduceLROnPlateau": partial(lr_scheduler.ReduceLROnPlateau, patience=1),
}


def six_losses(
    optimizer: str, options: dict, graphed: bool, make_scheduler: Callable = halve_lr
) -> list[float]:
    """The losses of six steps after three warm-up steps; the scheduler acts after each."""
    model = make_model(WIDTHS, (0.0,))
    batches = make_batches(6, 64, WIDTHS)
    weights = [weight for weight in model.parameters() if weight.ndim == 2]  # Muon takes no biases
    if "lr" in options:
        options = options | {"lr": torch.tensor(options["lr"], device="cuda")}
    trained = getattr(torch.optim, optimizer)(weights, **options)
    scheduler = make_scheduler(trained)

    def step(inputs: Tensor, targets: Tensor) -> Tensor:
        trained.zero_grad()
        loss = mse_loss(model(inputs), targets)
        loss.backward()
        trained.step(lambda: loss)  # LBFGS calls it; the loss stays the same
        return loss.detach()

    static_batch = [tensor.clone() for tensor in batches[0]]
    if graphed:
        train = capture_step(step, *static_batch)
    else:
        for _ in range(3):
            step(*static_batch)
        train = step
    losses = []
    for batch in batches:
        losses.append(train(*batch).item())
        scheduler.step()
    return losses


def verdict(optimizer: str, options: dict) -> str:
    """What becomes of an optimizer with these options in a graph: a cell of the page's table."""
    if not options.keys() <= signature(getattr(torch.optim, optimizer)).parameters.keys():
        return "-"
    try:
        with torch.cuda.stream(torch.cuda.current_stream()):  # restores the stream after an error
            losses = six_losses(optimizer, options, graphed=True)
    except (RuntimeError, KeyError):
        # Before torch 2.15, a failed capture holds the generator until the next good one.
        capture_step(lambda: torch.zeros(1, device="cuda"))
        return "error"
    eager_losses = six_losses(optimizer, options, graphed=False)
    # The first two losses are computed before the first change of the rate has any effect.
    if losses[:2] != eager_losses[:2]:
        return "differs"
    return "equal" if losses == eager_losses else "frozen"


def optimizer_table() -> pd.DataFrame:
    """The verdict on each optimizer (rows) in each setting (columns)."""
    rows = {name: [verdict(name, options) for options in SETTINGS.values()] for name in OPTIMIZERS}
    return pd.DataFrame(rows, index=list(SETTINGS)).T


def scheduler_table() -> pd.DataFrame:
    """How often five steps of each scheduler make the CPU wait, and what they leave behind."""
    return pd.DataFrame({name: _scheduler_row(make) for name, make in SCHEDULERS.items()}).T


def _scheduler_row(make_scheduler):
    """A row of scheduler_table(); the loss stays the same, which is a plateau."""
    lr = torch.tensor(0.1, device="cuda")
    weight = torch.ones(1, device="cuda", requires_grad=True)
    weight.grad = torch.ones_like(weight)
    optimizer = torch.optim.SGD([weight], lr=lr, momentum=0.9, fused=True)
    scheduler = make_scheduler(optimizer)
    loss = torch.ones((), device="cuda")
    arguments = [loss] if isinstance(scheduler, lr_scheduler.ReduceLROnPlateau) else []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        for _ in range(5):
            optimizer.step()
            scheduler.step(*arguments)
        torch.cuda.set_sync_debug_mode("default")
    waits = sum("called a synchronizing" in str(warning.message) for warning in caught)
    group = optimizer.param_groups[0]
    if group["lr"] is not lr:
        raise RuntimeError("The scheduler has put another learning rate in the tensor's place.")
    return {"waits": waits, "rate": f"{lr.item():.4g}", "momentum": f"{group['momentum']:.4g}"}


def to_markdown(frame: pd.DataFrame) -> str:
    """A DataFrame as a Markdown table, its index as the first column."""
    rows = [["", *frame.columns], ["---"] * (len(frame.columns) + 1)]
    rows += [[label, *cells] for label, *cells in frame.itertuples()]
    return "\n".join(f"| {' | '.join(map(str, row))} |" for row in rows) + "\n"


def main() -> int:
    """Print both tables in Markdown; returns 2, after a sentence, without a GPU."""
    if not torch.cuda.is_available():
        print("This needs a CUDA GPU, and torch sees none here.", file=sys.stderr)
        return 2
    warnings.filterwarnings("ignore", message="This instance was constructed with capturable")
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}\n")
    for rows in (optimizer_table(), scheduler_table()):
        print(to_markdown(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
