"""Answers to the exercises of *Make code capturable*: wrong ones, and other right ones (`__right_`)."""


changed(
    entropy,
    unsafe_where={"(p * torch.where(p > 0, p, 1).log())": "torch.where(p > 0, p * p.log(), 0)"},
    without_history={"1).log()": "1).detach().log()"},
    sign_lost={"-(p": "(p"},
    right_filled_mask={"torch.where(p > 0, p, 1)": "p.masked_fill(p <= 0, 1)"},
    right_mask_added={"torch.where(p > 0, p, 1)": "(p + (p == 0))"},
    right_both_safe={
        "return -(p * torch.where(p > 0, p, 1).log()).sum":
            "safe = torch.where(p > 0, p, 1)\nreturn -torch.where(p > 0, safe * safe.log(), 0).sum",
    },
    clamped_to_a_thousandth={"torch.where(p > 0, p, 1)": "p.clamp(min=1e-3)"},
)


changed(
    logger,
    first_row_skipped={
        "log[row] = loss": "row.add_(1).remainder_(len(log))\n…",
        "row.add_(1).remainder_(len(log))": "",
    },
    row_stands_still={"row.add_(1).remainder_(len(log))": ""},
    right_index_copy={
        "log[row] = loss": "log.index_copy_(0, row, loss[None])",
        "row.add_(1).remainder_(len(log))": "row.copy_((row + 1) % len(log))",
    },
    right_where={
        "row = torch.zeros(1, dtype=torch.int64, device='cuda')":
            "rows = torch.arange(len(log), device='cuda')\n"
            "row = torch.zeros((), dtype=torch.int64, device='cuda')",
        "log[row] = loss": "log.copy_(torch.where(rows == row, loss, log))",
    },
)


changed(
    logger__as_given,
    moved_row={
        "row = 0": "row = torch.zeros(1, dtype=torch.int64, device='cuda')",
        "log[row] = loss.item()": "log[row] = loss",
    },
)


changed(
    anneal_and_train,
    frozen_number={
        "torch.tensor(2.0, device='cuda')": "2.0",
        "def step(x):": "…\n    nonlocal temperature",
        "temperature.mul_(0.9).clamp_(min=1.0)": "temperature = max(1.0, 0.9 * temperature)",
        "unchanged(weight, temperature)": "unchanged(weight)",
    },
    cooled_before_backward={
        "weight.grad = None": "temperature.mul_(0.9).clamp_(min=1.0)\n…",
        "temperature.mul_(0.9).clamp_(min=1.0)": "",
    },
    cooled_first={
        "def step(x):": "…\n    temperature.mul_(0.9).clamp_(min=1.0)",
        "temperature.mul_(0.9).clamp_(min=1.0)": "",
    },
    one_batch={"replay(batch)": "replay()"},
    read_in_the_graph={"loss.detach()": "loss.item()"},
    static_input_rebound={
        "def step(x):": "x = batches[0].cuda()\ndef step():",
        "capture_step(step, batches[0].cuda())": "capture_step(step)",
        "losses = [replay(batch).clone() for batch in batches]":
            "losses = []\n"
            "for batch in batches:\n"
            "    x = batch.cuda()\n"
            "    losses.append(replay().clone())",
    },
    right_read_after_each_replay={
        "replay(batch).clone()": "replay(batch).item()",
        "torch.stack(losses).tolist()": "losses",
    },
)
