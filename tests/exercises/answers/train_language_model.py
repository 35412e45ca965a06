"""Answers to the exercises of *Train a language model*: wrong ones, and other right ones (`__right_`)."""

import copy


changed(
    accumulating_step,
    never_zeroed={
        "optimizer.zero_grad()": "",
        "with unchanged(net, optimizer):":
            "for weight in net.parameters():\n"
            "    weight.grad = torch.zeros_like(weight)\n"
            "…",
    },
    zeroed_between_micro_batches={
        "optimizer.zero_grad()": "",
        "loss.backward()": "optimizer.zero_grad()\n…",
    },
    not_clipped={"clip_grad_norm_(net.parameters(), 1.0)": ""},
    clipped_for_each_micro_batch={
        "clip_grad_norm_(net.parameters(), 1.0)": "",
        "loss.backward()": "…\nclip_grad_norm_(net.parameters(), 1.0)",
    },
    not_divided={" / len(inputs)": ""},
    only_the_sum_is_divided={" / len(inputs)": "", "stack(losses).sum()": "stack(losses).mean()"},
    lr_is_a_number={"lr.fill_(new_lr)": "optimizer.param_groups[0]['lr'] = new_lr"},
    clipped_to_a_tenth_more={"net.parameters(), 1.0": "net.parameters(), 1.1"},
    all_micro_batches_at_once={
        "zip(inputs, targets, strict=True)": "[(inputs.flatten(0, 1), targets.flatten(0, 1))]",
        " / len(inputs)": "",
    },
    captured_on_the_callers_tensors={"inputs.clone(), targets.clone()": "inputs, targets"},
    rate_written_after_the_replay={
        "lr.fill_(new_lr)": "",
        "return replay(inputs, targets).clone()":
            "loss = replay(inputs, targets).clone()\n"
            "lr.fill_(new_lr)\n"
            "return loss",
    },
    not_copied_in={"replay(inputs, targets)": "replay()"},
    right_lr_by_copy={"lr.fill_(new_lr)": "lr.copy_(torch.tensor(new_lr))"},
)


def checkpoints__load_state_dict(net, optimizer):
    def save():
        kept = copy.deepcopy((net.state_dict(), optimizer.state_dict()))
        return *kept, torch.cuda.get_rng_state()

    def load(saved):
        net.load_state_dict(saved[0])
        optimizer.load_state_dict(saved[1])
        torch.cuda.set_rng_state(saved[2])

    return save, load


changed(
    checkpoints,
    no_step_count={"state.values()]": "(state['exp_avg'], state['exp_avg_sq'])]"},
    weights_alone={"*states, ": ""},
    no_learning_rate={", optimizer.param_groups[0]['lr']": ""},
    no_buffers={"*net.state_dict().values()": "*(weight.detach() for weight in net.parameters())"},
    new_learning_rate={
        "torch.cuda.set_rng_state(rng_state)":
            "…\noptimizer.param_groups[0]['lr'] = saved[-1].clone()",
    },
    new_weights={
        "torch.cuda.set_rng_state(rng_state)":
            "…\n"
            "for name, weight in list(net.named_parameters()):\n"
            "    module, _, own = name.rpartition('.')\n"
            "    new_weight = torch.nn.Parameter(weight.detach().clone())\n"
            "    setattr(net.get_submodule(module), own, new_weight)",
    },
    right_on_the_cpu={"tensor.clone()": "tensor.cpu()"},
)
