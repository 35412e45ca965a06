"""Changes of solutions that a check accepts: exercise -> {change: why it is right, or else why the
stand-in cannot tell it}.
"""

INDEPENDENT = "The two statements do not depend on each other."
ON_A_GPU = "The stand-in's DDP launches nothing when it is built, so there is nothing to order; on a GPU the wait is needed."
CANCELS = "AdamW divides by the size of the gradients, so the norm cancels."
NO_CAPACITY = "No capacity of these loads drops between 1% and this share."
NOT_USED = "What the outside functions compute during the capture is not used."
NO_GRADIENT = "What is compared or copied without gradients needs no detach."

RIGHT: dict[str, dict[str, str]] = {
    "logger": {
        "1 to 2 in torch.zeros(1, dtype=torch.int64, device='cuda')": "Both entries of row name the same row.",
    },
    "anneal_and_train": {
        "swap loss = (x * weight / temperature - 1).square().mean()": INDEPENDENT,
        "no detach in return loss.detach()": "The losses are read as numbers.",
        "0 to 1 in batches[0]": "Any batch serves as the sample.",
    },
    "read_results": {
        "swap arrived[this].record()": INDEPENDENT,
        "no clone in results.append(buffers[this].clone())": "Nothing is copied into the last buffer any more.",
        "2 to 3 in range(2)": "A third buffer or event is not used.",
    },
    "train_with_schedule": {
        "0 to 1 in rates[0]": "Each replay is given its rate before.",
        "True turned in set_to_none=True": "Gradients that are zeroed in the graph train as new ones do.",
    },
    "train_on_plateau": {
        "swap scheduler.step(losses_of_epoch.mean())": INDEPENDENT,
    },
    "train_in_half": {
        "0.5 to 0.505 in clip_grad_norm_(net.parameters(), 0.5)": CANCELS,
        "0.5 to 0.55 in clip_grad_norm_(net.parameters(), 0.5)": CANCELS,
    },
    "train_prefetched": {
        "swap with unchanged(net):": INDEPENDENT,
    },
    "graph_around_read": {
        "swap replay_left = capture_step(left, hidden)": INDEPENDENT,
    },
    "accumulating_step": {
        "swap loss.backward()": INDEPENDENT,
    },
    "resumed_losses": {
        "swap net.load_state_dict(checkpoint['model'])": INDEPENDENT,
        "swap optimizer.load_state_dict(checkpoint['optimizer'])": INDEPENDENT,
        "swap scheduler.load_state_dict(checkpoint['scheduler'])": INDEPENDENT,
        "0 to 1 in batches[0]": "Any batch serves as the sample.",
    },
    "train_and_evaluate": {
        "drop net.train()": "The network is in training mode when the step is captured first.",
        "swap replay_step = capture_step(step, inputs.clone(), targets.clone(), pool=pool)": INDEPENDENT,
    },
    "generate": {
        "no warm-up in capture_step(steps, warmup=1)": "The prompt has run the model before.",
        "1 to 2 in warmup=1": "The cache has room for limit + 2 * every - 1 tokens, so for two warm-ups.",
    },
    "graph_attention": {
        "0 to 1 in values.masked_fill(behind[:, None], 0)": "The weight of these values is 0, and 0 times 1 is 0.",
    },
    "capture_in_pieces": {
        "drop side_stream.wait_stream(torch.cuda.current_stream())": NOT_USED,
        "swap side_stream.wait_stream(torch.cuda.current_stream())": NOT_USED,
        "swap graphs[-1].capture_begin(pool=pool)": INDEPENDENT,
        "swap output = function(*inputs)": INDEPENDENT,
    },
    "serve_requests": {
        "swap static_x[:len(x)] = x": INDEPENDENT,
        "1 to 2 in slots + 1": "One free slot more owns no rows.",
        "1 to 2 in 1:": "The first slot is written in each call.",
    },
    "serve_in_buckets": {
        "swap tokens, positions = torch.zeros(2, sizes[-1], 1, dtype=torch.long, device='cuda')": INDEPENDENT,
        "swap for static, new in zip((tokens, positions, rows), batch, strict=True):": INDEPENDENT,
        "1 to 2 in torch.zeros(2, sizes[-1], 1, dtype=torch.long, device='cuda')": "The same token twice at the same position has the same logits.",
        "0 to 1 in batch[0]": "All three parts of a batch have as many rows.",
    },
    "graph_verify": {
        "swap positions = input_pos + offsets": INDEPENDENT,
        "swap text.scatter_(1, positions + 1, choices)": INDEPENDENT,
    },
    "graph_speculate": {
        "swap positions = input_pos + offsets": INDEPENDENT,
        "swap read = [text.gather(1, input_pos)]": INDEPENDENT,
        "swap text.scatter_(1, positions + 1, choices)": INDEPENDENT,
    },
    "graph_steps": {
        "no warm-up in capture_step(steps, warmup=1)": "The steps use no library that is set up at its first call.",
        "1 to 2 in warmup=1": "Two rounds of warm-up are undone as one is.",
    },
    "adapter_server": {
        "swap base = layer.weight.clone()": INDEPENDENT,
    },
    "adapter_rows": {
        "swap A = weight.new_zeros(n_slots, rank, weight.shape[1])": INDEPENDENT,
        "swap A[slot].copy_(new_A)": INDEPENDENT,
        "assign A[slot].copy_(new_A)": "An assignment to an entry writes in place too.",
        "assign B[slot].copy_(new_B)": "An assignment to an entry writes in place too.",
    },
    "graph_groups": {
        "swap expert = route(x)": INDEPENDENT,
    },
    "graph_two_capacities": {
        "swap small = capture_step(lambda x: layer(x, capacity), static_x)": INDEPENDENT,
        "1 to 2 in capacity = 1": "The capacity that is looked for is larger.",
        "0.01 to 0.0101 in 0.01 * loads.sum()": NO_CAPACITY,
        "0.01 to 0.011 in 0.01 * loads.sum()": NO_CAPACITY,
    },
    "sum_of_branches": {
        "swap left(static_x)": INDEPENDENT,
        "swap with torch.cuda.stream(side):": INDEPENDENT,
    },
    "capture_turn": {
        "swap answers = torch.full((len(tokens), limit), -1, device='cuda')": INDEPENDENT,
        "swap tokens.copy_(torch.where(alive, step(tokens), tokens))": INDEPENDENT,
    },
    "capture_ddp": {
        "drop side_stream.wait_stream(torch.cuda.current_stream())": ON_A_GPU,
        "swap side_stream.wait_stream(torch.cuda.current_stream())": ON_A_GPU,
        "swap with torch.cuda.stream(side_stream):": ON_A_GPU,
        "drop torch.cuda.current_stream().wait_stream(side_stream)": ON_A_GPU,
        "11 to 12 in warmup=11": "DDP needs eleven warm-up steps, and takes more.",
    },
    "skip_together": {
        "drop side_stream.wait_stream(torch.cuda.current_stream())": ON_A_GPU,
        "swap side_stream.wait_stream(torch.cuda.current_stream())": ON_A_GPU,
        "swap with torch.cuda.stream(side_stream):": ON_A_GPU,
        "drop torch.cuda.current_stream().wait_stream(side_stream)": ON_A_GPU,
        "swap optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)": INDEPENDENT,
        "swap for parameter, momentum in zip(net.parameters(), momenta, strict=True):": INDEPENDENT,
        "swap loss.backward()": INDEPENDENT,
        "11 to 12 in warmup=11": "DDP needs eleven warm-up steps, and takes more.",
        "no detach in tensor.detach().clone": NO_GRADIENT,
        "no detach in loss.detach() < limit": NO_GRADIENT,
    },
    "graph_feed_forward": {
        "swap up_weight = up.weight.chunk(world_size)[rank]": INDEPENDENT,
        "swap up_bias = up.bias.chunk(world_size)[rank]": INDEPENDENT,
    },
    "graph_scaled": {
        "swap layer.scale.copy_(scale)": INDEPENDENT,
    },
    "graph_microbatches": {
        "swap first = capture_step(partial(layer, is_first_microbatch=True), inputs.clone())": INDEPENDENT,
    },
    "in_graphs": {
        "swap kept['static'].copy_(batch)": INDEPENDENT,
    },
    "capture_iteration": {
        "swap loss.backward()": INDEPENDENT,
    },
    "capture_average": {
        "drop average.zero_()": "The momentum is 0 in the warm-up, which so moves nothing.",
        "0.0 to 1 in torch.tensor(0.0, device='cuda')": "The momentum is written before each replay, and the average is set back.",
    },
}
