"""Changes of solutions that a check accepts: exercise and change -> why it is right, or else
why the stand-in cannot tell it.
"""

INDEPENDENT = "The two statements do not depend on each other."
ON_A_GPU = "The stand-in's DDP launches nothing when it is built, so there is nothing to order; on a GPU the wait is needed."
CANCELS = "AdamW divides by the size of the gradients, so the norm cancels."
NO_CAPACITY = "No capacity of these loads drops between 1% and this share."
NO_GRADIENT = "What is compared or copied without gradients needs no detach."
ZEROED = "Gradients that are zeroed in the graph train as new ones do."
ANY_BATCH = "Any batch serves as the sample."
BY_CHANCE = "About half: of so few images, chance alone mirrors a share that differs more."
WARM_UP_DROPPED = "The result of the warm-up is dropped, and its autograd graph with it."

BELOW_ROUNDING = "It changes the variance by less than rounding does."

GIVEN = "The puzzle gives this line, and asks for another one: each result is read before the next call."

RIGHT: dict[str, str] = {
    "train_with_falling_rate: no clone in lr=rates[0].clone()": "Only the first step reads rates[0].",
    "train_with_falling_rate: 0 to 1 in rates[0]": "The first step writes its rate first.",
    "make_ten_times: no clone in return y.clone()": GIVEN,
    "make_shifted: no clone in return y.clone()": GIVEN,
    "make_positive: no clone in static_x = x.clone()": GIVEN,
    "make_positive: no clone in return y.clone()": GIVEN,
    "make_noisy: no clone in return y.clone()": GIVEN,
    "make_noisy: drop run.keeps = noise": "The noise is made in the capture, so the pool keeps its memory.",
    "on_two_streams: swap with torch.cuda.stream(side):": INDEPENDENT,
    "make_server: swap out[position] = next_token": INDEPENDENT,
    "make_server: 1 to 2 in torch.zeros(1, dtype=torch.int64, device='cuda')": "Both entries of token follow the same path.",
    "graph_normalized_policy: swap mean.lerp_(obs.mean(0), 0.1)": INDEPENDENT,
    "graph_normalized_policy: 1e-05 to 1.01e-05 in var + 1e-05": BELOW_ROUNDING,
    "graph_normalized_policy: 1e-05 to 1.1e-05 in var + 1e-05": BELOW_ROUNDING,
    "graph_delayed_update: swap train_critic = capture_step(critic_step, batch.clone())": INDEPENDENT,
    "profile_steps: 7 to 8 in range(7)": "The schedule has ended, so the call after it is not recorded.",
    "profile_steps: 5 to 6 in active=5": "The loop ends after five recorded calls, which are saved at the end of the block.",
    "profile_steps: 1 to 2 in repeat=1": "The loop ends before a second round begins.",
    "make_predictor: unwrap with torch.no_grad():": WARM_UP_DROPPED,
    "make_scaled_predictor: unwrap with torch.no_grad():": WARM_UP_DROPPED,
    "make_scaled_predictor: drop predict.net = net": "Only the text of make_predictor says that the caller may delete the network.",
    "graph_after_warm_up: swap for static, new in zip(state['static'], batch, strict=True):": INDEPENDENT,
    "graph_after_warm_up: swap if state['calls'] <= 3:": INDEPENDENT,
    "resume: swap net.load_state_dict(checkpoint['net'])": INDEPENDENT,
    "train_in_place: swap for parameter in net.parameters():": "After graphing, too, .grad becomes a tensor that is not the graph's.",
    "train_in_place: False turned in set_to_none=False": "The other repair: autograd then adds nothing to what the graph wrote.",
    "decode_ahead: swap copied.record()": INDEPENDENT,
    "decode_ahead: 0 to 1 in batches[0]": ANY_BATCH,
    "train_as_advised: swap if found['idle'] < 0.2:": INDEPENDENT,
    "make_solver: swap static_x = x.clone()": INDEPENDENT,
    "make_solver: 0.01 to 0.0101 in static_moved > 0.01": "No round of these inputs moves z by a distance between the two.",
    "flip_graph: 0.5 to 0.505 in torch.rand(len(images), 1, 1, 1, device='cuda') < 0.5": BY_CHANCE,
    "flip_graph: 0.5 to 0.55 in torch.rand(len(images), 1, 1, 1, device='cuda') < 0.5": BY_CHANCE,
    "two_models: swap replay_first = capture_step(partial(first, static_input))": INDEPENDENT,
    "logger: 1 to 2 in torch.zeros(1, dtype=torch.int64, device='cuda')": "Both entries of row name the same row.",
    "anneal_and_train: swap loss = (x * weight / temperature - 1).square().mean()": INDEPENDENT,
    "anneal_and_train: no detach in return loss.detach()": "The losses are read as numbers.",
    "read_results: swap arrived[this].record()": INDEPENDENT,
    "read_results: no clone in results.append(buffers[this].clone())": "Nothing is copied into the last buffer any more.",
    "read_results: 2 to 3 in range(2)": "A third buffer or event is not used.",
    "train_on_plateau: swap scheduler.step(losses_of_epoch.mean())": INDEPENDENT,
    "train_in_half: 0.5 to 0.505 in clip_grad_norm_(net.parameters(), 0.5)": CANCELS,
    "train_in_half: 0.5 to 0.55 in clip_grad_norm_(net.parameters(), 0.5)": CANCELS,
    "train_prefetched: swap with unchanged(net):": INDEPENDENT,
    "graph_around_read: swap replay_left = capture_step(left, hidden)": INDEPENDENT,
    "accumulating_step: swap loss.backward()": INDEPENDENT,
    "make_responder: swap tokens.copy_(sample(model(prompt, positions, kv_cache)))": INDEPENDENT,
    "generate: no warm-up in capture_step(steps, warmup=1)": "The prompt has run the model before.",
    "generate: 1 to 2 in warmup=1": "The cache has room for limit + 2 * every - 1 tokens, so for two warm-ups.",
    "serve_requests: swap static_x[:len(x)] = x": INDEPENDENT,
    "serve_requests: 1 to 2 in slots + 1": "One free slot more owns no rows.",
    "serve_requests: 1 to 2 in 1:": "The first slot is written in each call.",
    "graph_verify: swap positions = input_pos + offsets": INDEPENDENT,
    "graph_verify: swap text.scatter_(1, positions + 1, choices)": INDEPENDENT,
    "graph_speculate: swap positions = input_pos + offsets": INDEPENDENT,
    "graph_speculate: swap read = [text.gather(1, input_pos)]": INDEPENDENT,
    "graph_speculate: swap text.scatter_(1, positions + 1, choices)": INDEPENDENT,
    "graph_steps: no warm-up in capture_step(steps, warmup=1)": "The steps use no library that is set up at its first call.",
    "graph_steps: 1 to 2 in warmup=1": "Two rounds of warm-up are undone as one is.",
    "graph_lookup: 0 to 1 in torch.where(matches, positions, 0)": "A row without an earlier occurrence may get any drafts.",
    "adapter_server: swap base = layer.weight.clone()": INDEPENDENT,
    "adapter_rows: swap A = weight.new_zeros(n_slots, rank, weight.shape[1])": INDEPENDENT,
    "adapter_rows: swap A[slot].copy_(new_A)": INDEPENDENT,
    "adapter_rows: assign A[slot].copy_(new_A)": "An assignment to an entry writes in place too.",
    "adapter_rows: assign B[slot].copy_(new_B)": "An assignment to an entry writes in place too.",
    "graph_groups: swap expert = route(x)": INDEPENDENT,
    "graph_two_capacities: swap small = capture_step(lambda x: layer(x, capacity), static_x)": INDEPENDENT,
    "graph_two_capacities: 1 to 2 in capacity = 1": "The capacity that is looked for is larger.",
    "graph_two_capacities: 0.01 to 0.0101 in 0.01 * loads.sum()": NO_CAPACITY,
    "graph_two_capacities: 0.01 to 0.011 in 0.01 * loads.sum()": NO_CAPACITY,
    "capture_generate: swap tokens = tokens.clone()": INDEPENDENT,
    "capture_generate: drop step(tokens)": "The step of the check uses no library that a warm-up has to set up.",
    "capture_generate: swap completions = torch.full((len(tokens), limit), -1, device='cuda')": INDEPENDENT,
    "capture_generate: swap tokens.copy_(torch.where(alive, step(tokens), tokens))": INDEPENDENT,
    "capture_sampler: swap token = token.clone()": INDEPENDENT,
    "skip_together: swap optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)": INDEPENDENT,
    "skip_together: swap for parameter, momentum in zip(net.parameters(), momenta, strict=True):": INDEPENDENT,
    "skip_together: swap loss.backward()": INDEPENDENT,
    "skip_together: no detach in tensor.detach().clone": NO_GRADIENT,
    "skip_together: no detach in loss.detach() < limit": NO_GRADIENT,
    "graph_feed_forward: swap up_weight = up.weight.chunk(world_size)[rank]": INDEPENDENT,
    "graph_feed_forward: swap up_bias = up.bias.chunk(world_size)[rank]": INDEPENDENT,
    "graph_scaled: swap layer.scale.copy_(scale)": INDEPENDENT,
    "graph_microbatches: swap first = capture_step(partial(layer, is_first_microbatch=True), inputs.clone())": INDEPENDENT,
    "in_graphs: swap kept['static'].copy_(batch)": INDEPENDENT,
    "capture_average: drop average.zero_()": "The momentum is 0 in the warm-up, which so moves nothing.",
    "capture_average: 0.0 to 1 in torch.tensor(0.0, device='cuda')": "The momentum is written before each replay, and the average is set back.",
    "graph_sampler: swap sigma.fill_(1 - i / num_steps)": INDEPENDENT,
    "graph_seeded_sampler: 2 to 3 in (2, 15)": "Registering the generators before the capture is right in every version.",
    "graph_seeded_sampler: 15 to 16 in (2, 15)": "Registering the generators before the capture is right in every version.",
}
for name in ("train_epoch", "log_and_capture", "capture_training", "train_with_falling_rate"):
    RIGHT[f"{name}: True turned in set_to_none=True"] = ZEROED
for name in ("train_epoch", "train_in_place", "anneal_and_train"):
    RIGHT[f"{name}: 0 to 1 in batches[0]"] = ANY_BATCH
for name in ("capture_ddp", "accumulate_ddp", "skip_together"):
    RIGHT[f"{name}: 11 to 12 in warmup=11"] = "DDP needs eleven warm-up steps, and takes more."
    for change in (
        "drop side_stream.wait_stream(torch.cuda.current_stream())",
        "swap side_stream.wait_stream(torch.cuda.current_stream())",
        "swap with torch.cuda.stream(side_stream):",
        "drop torch.cuda.current_stream().wait_stream(side_stream)",
    ):
        RIGHT[f"{name}: {change}"] = ON_A_GPU
