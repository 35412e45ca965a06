"""Changes of solutions that a check accepts: exercise -> {change: why it is right, or else why the
stand-in cannot tell it}.
"""

INDEPENDENT = "The two statements do not depend on each other."
ON_A_GPU = "The stand-in's DDP launches nothing when it is built, so there is nothing to order; on a GPU the wait is needed."
CANCELS = "AdamW divides by the size of the gradients, so the norm cancels."
NO_CAPACITY = "No capacity of these loads drops between 1% and this share."
NOT_USED = "What the outside functions compute during the capture is not used."
NO_GRADIENT = "What is compared or copied without gradients needs no detach."
ZEROED = "Gradients that are zeroed in the graph train as new ones do."
ANY_BATCH = "Any batch serves as the sample."
WAITS_ANYWAY = "torch.cuda.graph waits for all streams before it captures."
BY_CHANCE = "About half: of so few images, chance alone mirrors a share that differs more."
REGISTERED = (
    "From torch 2.15 on a capture registers its generators; older versions refuse this change."
)
WARM_UP_DROPPED = "The result of the warm-up is dropped, and its autograd graph with it."

BELOW_ROUNDING = "It changes the variance by less than rounding does."

RIGHT: dict[str, dict[str, str]] = {
    "graph_normalized_policy": {
        "swap mean.lerp_(obs.mean(0), 0.1)": INDEPENDENT,
        "1e-05 to 1.01e-05 in var + 1e-05": BELOW_ROUNDING,
        "1e-05 to 1.1e-05 in var + 1e-05": BELOW_ROUNDING,
    },
    "graph_replay_buffer": {
        "swap buffer[index] = rows": INDEPENDENT,
    },
    "graph_delayed_update": {
        "swap train_critic = capture_step(critic_step, batch.clone())": INDEPENDENT,
    },
    "profile_steps": {
        "7 to 8 in range(7)": "The schedule has ended, so the call after it is not recorded.",
        "5 to 6 in active=5": "The loop ends after five recorded calls, which are saved at the end of the block.",
        "1 to 2 in repeat=1": "The loop ends before a second round begins.",
    },
    "make_predictor": {
        "unwrap with torch.no_grad():": WARM_UP_DROPPED,
    },
    "make_scaled_predictor": {
        "unwrap with torch.no_grad():": WARM_UP_DROPPED,
        "drop predict.net = net": "Only the text of make_predictor says that the caller may delete the network.",
    },
    "train_epoch": {
        "True turned in set_to_none=True": ZEROED,
        "0 to 1 in batches[0]": ANY_BATCH,
    },
    "log_and_capture": {
        "True turned in set_to_none=True": ZEROED,
    },
    "capture_training": {
        "True turned in set_to_none=True": ZEROED,
    },
    "gradients_of": {
        "swap net.zero_grad(set_to_none=True)": INDEPENDENT,
        "True turned in set_to_none=True": ZEROED,
    },
    "graph_after_warm_up": {
        "swap for static, new in zip(state['static'], batch, strict=True):": INDEPENDENT,
        "swap if state['calls'] <= 3:": INDEPENDENT,
    },
    "train_with_falling_rate": {
        "True turned in set_to_none=True": ZEROED,
    },
    "resume": {
        "swap net.load_state_dict(checkpoint['net'])": INDEPENDENT,
    },
    "train_in_place": {
        "swap for parameter in net.parameters():": "After graphing, too, .grad becomes a tensor that is not the graph's.",
        "False turned in set_to_none=False": "The other repair: autograd then adds nothing to what the graph wrote.",
        "0 to 1 in batches[0]": ANY_BATCH,
    },
    "graph_for_accumulation": {
        "swap for name, buffer in graphed.named_buffers():": INDEPENDENT,
    },
    "make_solver": {
        "swap static_x = x.clone()": INDEPENDENT,
        "0.01 to 0.0101 in static_moved > 0.01": "No round of these inputs moves z by a distance between the two.",
    },
    "flip_graph": {
        "0.5 to 0.505 in torch.rand(len(images), 1, 1, 1, device='cuda') < 0.5": BY_CHANCE,
        "0.5 to 0.55 in torch.rand(len(images), 1, 1, 1, device='cuda') < 0.5": BY_CHANCE,
    },
    "noise_graph": {
        "swap graph = torch.cuda.CUDAGraph()": REGISTERED,
        "drop if torch.__version__ < (2, 15):": REGISTERED,
        "swap if torch.__version__ < (2, 15):": REGISTERED,
        "drop graph.register_generator_state(generator)": REGISTERED,
        "2 to 3 in (2, 15)": "Registering the generator before the capture is right in every version.",
        "15 to 16 in (2, 15)": "Registering the generator before the capture is right in every version.",
    },
    "scored_decoder": {
        "swap decode(encode(static_input))": INDEPENDENT,
        "swap score(static_input)": "The scorer still runs before its own capture.",
        "swap with torch.cuda.graph(encoder, pool=pool):": "The scorer has no intermediate results, so its replay writes nothing but the scores.",
    },
    "two_models": {
        "swap replay_first = capture_step(partial(first, static_input))": INDEPENDENT,
    },
    "prefetching": {
        "swap torch.cuda.current_stream().wait_stream(copy_stream)": INDEPENDENT,
        "swap if number + 1 < len(batches):": "The copy stream has waited for the step before, so the copy still runs during this one.",
        "2 to 3 in range(2)": "A third buffer is not used.",
    },
    "time_capture": {
        "drop side_stream.wait_stream(torch.cuda.current_stream())": "torch.cuda.synchronize() waits for all streams.",
        "drop torch.cuda.current_stream().wait_stream(side_stream)": "torch.cuda.synchronize() waits for all streams.",
        "swap with torch.cuda.stream(side_stream):": "torch.cuda.synchronize() waits for all streams.",
        "drop torch.cuda.synchronize()": "The last of three: on the stand-in a capture launches nothing.",
    },
    "train_from_warm_up": {
        "swap with torch.cuda.stream(side_stream):": WAITS_ANYWAY,
        "drop torch.cuda.current_stream().wait_stream(side_stream)": WAITS_ANYWAY,
        "drop inputs, targets = batches[3]": ANY_BATCH,
        "swap inputs, targets = batches[3]": INDEPENDENT,
        "3 to 4 in batches[3]": ANY_BATCH,
    },
    "logger": {
        "1 to 2 in torch.zeros(1, dtype=torch.int64, device='cuda')": "Both entries of row name the same row.",
    },
    "anneal_and_train": {
        "swap loss = (x * weight / temperature - 1).square().mean()": INDEPENDENT,
        "no detach in return loss.detach()": "The losses are read as numbers.",
        "0 to 1 in batches[0]": ANY_BATCH,
    },
    "read_results": {
        "swap arrived[this].record()": INDEPENDENT,
        "no clone in results.append(buffers[this].clone())": "Nothing is copied into the last buffer any more.",
        "2 to 3 in range(2)": "A third buffer or event is not used.",
    },
    "train_with_schedule": {
        "0 to 1 in rates[0]": "Each replay is given its rate before.",
        "True turned in set_to_none=True": ZEROED,
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
    "train_as_advised": {
        "swap if found['idle'] < 0.2:": INDEPENDENT,
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
        "0 to 1 in batches[0]": ANY_BATCH,
    },
    "train_and_evaluate": {
        "drop net.train()": "The network is in training mode when the step is captured first.",
        "swap replay_step = capture_step(step, inputs.clone(), targets.clone(), pool=pool)": INDEPENDENT,
    },
    "make_responder": {
        "swap tokens.copy_(sample(model(prompt, positions, kv_cache)))": INDEPENDENT,
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
    "decode_ahead": {
        "swap copied.record()": INDEPENDENT,
        "0 to 1 in batches[0]": ANY_BATCH,
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
    "graph_lookup": {
        "0 to 1 in torch.where(matches, positions, 0)": "A row without an earlier occurrence may get any drafts.",
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
    "capture_generate": {
        "swap tokens = tokens.clone()": INDEPENDENT,
        "drop step(tokens)": "The step of the check uses no library that a warm-up has to set up.",
        "swap completions = torch.full((len(tokens), limit), -1, device='cuda')": INDEPENDENT,
        "swap tokens.copy_(torch.where(alive, step(tokens), tokens))": INDEPENDENT,
    },
    "capture_sampler": {
        "swap token = token.clone()": INDEPENDENT,
    },
    "capture_ddp": {
        "drop side_stream.wait_stream(torch.cuda.current_stream())": ON_A_GPU,
        "swap side_stream.wait_stream(torch.cuda.current_stream())": ON_A_GPU,
        "swap with torch.cuda.stream(side_stream):": ON_A_GPU,
        "drop torch.cuda.current_stream().wait_stream(side_stream)": ON_A_GPU,
        "11 to 12 in warmup=11": "DDP needs eleven warm-up steps, and takes more.",
    },
    "accumulate_ddp": {
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
    "graph_sampler": {
        "swap sigma.fill_(1 - i / num_steps)": INDEPENDENT,
    },
    "graph_seeded_sampler": {
        "2 to 3 in (2, 15)": "Registering the generators before the capture is right in every version.",
        "15 to 16 in (2, 15)": "Registering the generators before the capture is right in every version.",
    },
    "graph_late_guidance": {
        "swap replay_guided = capture_step(guided_step)": INDEPENDENT,
        "swap sigma.fill_(sigmas[i])": INDEPENDENT,
    },
}
