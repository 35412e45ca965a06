"""Answers to the exercises of *Optimizers and mixed precision*: wrong ones, and other right ones (`__right_`)."""


changed(
    train_on_plateau,
    not_cloned={
        "torch.stack([replay().clone() for _ in range(steps)])": "[replay() for _ in range(steps)]",
        "losses_of_epoch.mean()": "torch.stack(losses_of_epoch).mean()",
        "losses.append(losses_of_epoch)": "losses += losses_of_epoch",
        "torch.cat(losses)": "torch.stack(losses)",
    },
    item_in_every_step={
        "torch.stack([replay().clone() for _ in range(steps)])":
            "torch.tensor([replay().item() for _ in range(steps)])",
    },
    rate_is_a_number={"torch.tensor(0.1, device='cuda')": "0.1"},
    not_fused={", fused=True": ""},
    last_loss_of_the_epoch={"losses_of_epoch.mean()": "losses_of_epoch[-1]"},
    right_sum_on_the_gpu={
        "losses_of_epoch = torch.stack([replay().clone() for _ in range(steps)])":
            "total = torch.zeros((), device='cuda')\n"
            "for _ in range(steps):\n"
            "    losses.append(replay().clone())\n"
            "    total += losses[-1]",
        "losses_of_epoch.mean()": "total / steps",
        "losses.append(losses_of_epoch)": "",
        "torch.cat(losses)": "torch.stack(losses)",
    },
)


changed(
    train_in_half,
    scaler_not_restored={"unchanged(net, optimizer, scaler)": "unchanged(net, optimizer)"},
    clipped_while_scaled={"scaler.unscale_(optimizer)": ""},
    not_clipped={"clip_grad_norm_(net.parameters(), 0.5)": ""},
    in_float32={"dtype=torch.float16": "enabled=False"},
    right_state_loaded={
        "unchanged(net, optimizer, scaler)": "unchanged(net, optimizer)",
        "return (train, scaler)":
            "new = torch.amp.GradScaler(init_scale=2.0 ** 10, growth_interval=4)\n"
            "scaler.load_state_dict(new.state_dict())\n"
            "…",
    },
    update_outside={"scaler.step(optimizer)\nscaler.update()": "optimizer.step()"},
)


changed(
    train_prefetched,
    copy_waits_for_the_replay={
        "has_been_read.record()\nlosses.append(replay().clone())":
            "losses.append(replay().clone())\nhas_been_read.record()",
    },
    recorded_too_soon={
        "copy_batch(static_batch, next_batch)\nhas_been_read.record()":
            "has_been_read.record()\ncopy_batch(static_batch, next_batch)",
    },
    batch_asked_for_before_the_replay={
        "losses.append(replay().clone())\n"
        "if number + 1 < len(batches):\n"
        "    start_copy(batches[number + 1])":
            "if number + 1 < len(batches):\n"
            "    start_copy(batches[number + 1])\n"
            "losses.append(replay().clone())",
    },
    right_as_in_the_example={
        "def start_copy(batch):":
            "has_been_read.record()\n"
            "losses = []\n"
            "for batch in batches:",
        "losses = []\n"
        "has_been_read.record()\n"
        "start_copy(batches[0])\n"
        "for number in range(len(batches)):": "",
        "if number + 1 < len(batches):\n    start_copy(batches[number + 1])": "",
    },
)
