"""Answers to the puzzles: wrong ones that people give, and unusual right ones (`__right_`)."""


changed(
    ten_times,
    for_show={"graph.replay()": "…\ny = 10 * x"},
    for_show_in_place={"graph.replay()": "…\ny.copy_(10 * x)"},
    callers_x={"y = 10 * x": "y = x.mul_(10)"},
    replayed_inside={
        "with torch.cuda.graph(graph):\n    y = 10 * x\ngraph.replay()":
            "with torch.cuda.graph(graph):\n    y = 10 * x\n    graph.replay()",
    },
    not_called={"graph.replay()": "graph.replay"},
    computed_eagerly={"graph.replay()": "y = 10 * x"},
    waited_for={"graph.replay()": "torch.cuda.synchronize()"},
    replayed_too_early={
        "with torch.cuda.graph(graph):\n    y = 10 * x\ngraph.replay()":
            "with torch.cuda.graph(graph):\n    y = 10 * x\nx.zero_()\ngraph.replay()",
    },
    right_by_the_class={"graph.replay()": "torch.cuda.CUDAGraph.replay(graph)"},
    right_twice={"graph.replay()": "for _ in range(2):\n    graph.replay()"},
)


changed(
    make_ten_times,
    for_show={"return y.clone()": "return 10 * new_x"},
    rebound={"static_x.copy_(new_x)": "static_x = new_x"},
    other_direction={"static_x.copy_(new_x)": "new_x.copy_(static_x)"},
    too_late={"static_x.copy_(new_x)": "graph.replay()", "graph.replay()": "static_x.copy_(new_x)"},
    on_the_result={"static_x.copy_(new_x)": "y.copy_(new_x)"},
    without_the_graph={"return y.clone()": "return 10 * new_x", "graph.replay()": ""},
    right_by_index={"static_x.copy_(new_x)": "static_x[:] = new_x"},
    right_in_place={"static_x.copy_(new_x)": "static_x.zero_().add_(new_x)"},
    right_by_out={"static_x.copy_(new_x)": "torch.add(new_x, 0, out=static_x)"},
)


changed(
    keep_results,
    for_show={"static_y.clone()": "2 * request"},
    numbers={"static_y.clone()": "static_y.tolist()"},
    cloned_too_early={
        "graph.replay()": "results.append(static_y.clone())",
        "results.append(static_y.clone())": "graph.replay()",
    },
    detached={"static_y.clone()": "static_y.detach()"},
    without_the_graph={"graph.replay()": "", "static_y.clone()": "2 * request"},
    the_input={"static_y.clone()": "static_x.clone()"},
    right_plus_zero={"static_y.clone()": "static_y + 0"},
    right_by_numbers={"static_y.clone()": "torch.tensor(static_y.tolist(), device='cuda')"},
    right_as_rows={
        "results.append(static_y.clone())": "results = [*results, torch.empty_like(static_y).copy_(static_y)]",
    },
)


changed(
    count_up,
    for_show={
        "return graph.replay": "def run():\n    before.add_(1)\n    graph.replay()\n    state.copy_(before)\nreturn run",
    },
    first_call_idle={
        "state.copy_(before)": "",
        "return graph.replay":
            "calls = []\ndef run():\n    if calls:\n        graph.replay()\n    calls.append(1)\nreturn run",
    },
    not_undone={"state.copy_(before)": ""},
    rebound={"state.copy_(before)": "state = before"},
    no_warm_up={"before = state.clone()\nstate.add_(1)": "before = state.clone()"},
    on_a_copy={"before = state.clone()": "state = state.clone()", "state.copy_(before)": "state.sub_(1)"},
    right_subtracted={"before = state.clone()": "", "state.copy_(before)": "state.sub_(1)"},
    right_after_the_capture={"state.copy_(before)": "", "return graph.replay": "state.copy_(before)\n…"},
    right_on_the_cpu={"state.clone()": "state.cpu()"},
)


changed(
    make_shifted,
    for_show={"return y.clone()": "return x + offset"},
    nothing={"run.keeps = offset": ""},
    a_clone={"run.keeps = offset": "run.keeps = offset.clone()"},
    deleted={"run.keeps = offset": "del offset"},
    the_wrong_one={"run.keeps = offset": "run.keeps = x, y, graph"},
    eager={"graph.replay()\nreturn y.clone()": "return x + offset"},
    nothing_returned={"return y.clone()": "y.clone()"},
    right_on_the_graph={"run.keeps = offset": "graph.keeps = offset"},
    right_in_the_closure={"graph.replay()": "offset\ngraph.replay()"},
    right_a_view={"run.keeps = offset": "run.keeps = offset[:1]"},
)


changed(
    losses_of,
    for_show={"loss.clone()": "batch.square().sum()"},
    a_tensor_each_time={"loss.clone()": "torch.tensor([loss])", "torch.stack(losses)": "torch.cat(losses)"},
    pinned_without_a_wait={
        "losses = []": "losses = torch.zeros(len(batches), pin_memory=True)",
        "for batch in batches:": "for number, batch in enumerate(batches):",
        "losses.append(loss.clone())": "losses[number].copy_(loss, non_blocking=True)",
        "torch.stack(losses).tolist()": "losses.tolist()",
    },
    right_pinned={
        "losses = []": "losses = torch.zeros(len(batches), pin_memory=True)",
        "for batch in batches:": "for number, batch in enumerate(batches):",
        "losses.append(loss.clone())": "losses[number].copy_(loss, non_blocking=True)",
        "return torch.stack(losses).tolist()": "torch.cuda.synchronize()\nreturn losses.tolist()",
    },
    read_each_time={"loss.clone()": "loss.item()", "torch.stack(losses).tolist()": "losses"},
    tensors={"torch.stack(losses).tolist()": "losses"},
    read_in_the_capture={"loss = x.square().sum()": "loss = x.square().sum()\nloss.item()"},
    without_the_graph={"graph.replay()": "", "loss.clone()": "batch.square().sum()"},
    right_into_a_tensor={
        "losses = []": "losses = torch.zeros(len(batches), device='cuda')",
        "for batch in batches:": "for number, batch in enumerate(batches):",
        "losses.append(loss.clone())": "losses[number] = loss",
        "torch.stack(losses).tolist()": "losses.tolist()",
    },
    right_by_the_sum={"loss.clone()": "loss + 0"},
    right_joined={
        "torch.stack(losses).tolist()": "torch.cat([one.reshape(1) for one in losses]).cpu().tolist()",
    },
)


changed(
    make_positive,
    for_show={"return y.clone()": "return torch.where(new_x.sum() > 0, new_x, -new_x)"},
    by_the_first={"static_x.sum() > 0": "static_x[0] > 0"},
    each_number={"static_x.sum() > 0": "static_x > 0"},
    other_way_round={"static_x, -static_x": "-static_x, static_x"},
    by_abs={"torch.where(static_x.sum() > 0, static_x, -static_x)": "static_x.abs()"},
    frozen={
        "graph = torch.cuda.CUDAGraph()": "positive = bool(static_x.sum() > 0)\n…",
        "torch.where(static_x.sum() > 0, static_x, -static_x)": "static_x * (1 if positive else -1)",
    },
    outside={
        "y = torch.where(static_x.sum() > 0, static_x, -static_x)": "y = 1 * static_x",
        "return y.clone()": "return y.clone() if new_x.sum() > 0 else 2 - y",
    },
    right_by_mean={"static_x.sum() > 0": "static_x.mean() > 0"},
    right_by_a_float={
        "torch.where(static_x.sum() > 0, static_x, -static_x)":
            "static_x * (2 * (static_x.sum() > 0).float() - 1)",
    },
    right_by_index={
        "torch.where(static_x.sum() > 0, static_x, -static_x)":
            "torch.stack([-static_x, static_x]).index_select(0, (static_x.sum() > 0).long().reshape(1))[0]",
    },
)


changed(
    on_two_streams,
    for_show={"graph.replay()": "…\ny = x.sin() + x.cos()"},
    right_the_other_way_round={"a = x.sin()": "a = x.cos()", "b = x.cos()": "b = x.sin()"},
    joined_too_late={
        "torch.cuda.current_stream().wait_stream(side)\ny = a + b": "y = a + b\ntorch.cuda.current_stream().wait_stream(side)",
    },
    swapped={
        "side.wait_stream(torch.cuda.current_stream())": "torch.cuda.current_stream().wait_stream(side)",
        "torch.cuda.current_stream().wait_stream(side)": "side.wait_stream(torch.cuda.current_stream())",
    },
    by_the_cpu={"torch.cuda.current_stream().wait_stream(side)": "torch.cuda.synchronize()"},
    one_after_the_other={
        "b = x.cos()\ntorch.cuda.current_stream().wait_stream(side)":
            "torch.cuda.current_stream().wait_stream(side)\nb = x.cos()",
    },
    one_stream={"with torch.cuda.stream(side):": "with torch.cuda.stream(torch.cuda.current_stream()):"},
    right_by_events={
        "side.wait_stream(torch.cuda.current_stream())":
            "fork = torch.cuda.Event()\nfork.record()\nside.wait_event(fork)",
        "torch.cuda.current_stream().wait_stream(side)":
            "torch.cuda.current_stream().wait_event(side.record_event())",
    },
    right_cos_first={
        "with torch.cuda.stream(side):\n    a = x.sin()": "",
        "b = x.cos()": "…\nwith torch.cuda.stream(side):\n    a = x.sin()",
    },
    right_in_place={"y = a + b": "y = b.add_(a)"},
)


changed(
    make_noisy,
    for_show={"return y.clone()": "return x + torch.randn_like(x)"},
    uniform={"torch.randn_like(x)": "torch.rand_like(x)"},
    narrow={"torch.randn_like(x)": "0.5 * torch.randn_like(x)"},
    coins={"torch.randn_like(x)": "torch.bernoulli(torch.full_like(x, 0.5))"},
    callers_x={"y = x + noise": "y = x.add_(noise)"},
    drawn_outside={
        "graph = torch.cuda.CUDAGraph()": "noise = torch.randn_like(x)\n…",
        "with torch.cuda.graph(graph):\n    noise = torch.randn_like(x)\n": "with torch.cuda.graph(graph):\n",
        "graph.replay()": "noise.normal_()\n…",
    },
    before_the_capture={
        "graph = torch.cuda.CUDAGraph()": "noise = torch.randn_like(x)\nrun_keeps = noise\n…",
        "noise = torch.randn_like(x)": "noise = run_keeps",
    },
    one_number={"torch.randn_like(x)": "torch.randn(1, device='cuda')"},
    from_the_cpu={"torch.randn_like(x)": "torch.randn(3).to('cuda')"},
    eager={"graph.replay()\nreturn y.clone()": "return x + torch.randn_like(x)"},
    not_filled={"torch.randn_like(x)": "torch.empty_like(x)"},
    right_in_place={"torch.randn_like(x)": "torch.empty_like(x).normal_()"},
    right_outside_memory={
        "graph = torch.cuda.CUDAGraph()": "noise = torch.zeros_like(x)\n…",
        "noise = torch.randn_like(x)": "noise.normal_()",
    },
    right_by_normal={"y = x + noise": "y = torch.normal(x, 1.0)"},
)


changed(
    score_and_decode,
    for_show={"return (scores, decoded)": "return (score(x), decode(x))"},
    right_plus_zero={"scores = score(x)": "scores = score(x) + 0"},
    two_pools={", pool=score_graph.pool()": ""},
    no_second_replay={"decode_graph.replay()": ""},
    one_graph={
        "decode_graph = torch.cuda.CUDAGraph()\n": "",
        "with torch.cuda.graph(decode_graph, pool=score_graph.pool()):\n    decoded = decode(x)": "",
        "scores = score(x)": "scores = score(x)\ndecoded = decode(x)",
        "decode_graph.replay()": "",
    },
    eager_scores={"score_graph.replay()\ndecode_graph.replay()": "decode_graph.replay()", "return (scores, decoded)": "return (score(x), decoded)"},
    replays_swapped={"score_graph.replay()": "decode_graph.replay()", "decode_graph.replay()": "score_graph.replay()"},
    results_swapped={"return (scores, decoded)": "return (decoded, scores)"},
    right_by_a_handle={
        "score_graph = torch.cuda.CUDAGraph()": "pool = torch.cuda.graph_pool_handle()\n…",
        "torch.cuda.graph(score_graph)": "torch.cuda.graph(score_graph, pool=pool)",
        "pool=score_graph.pool()": "pool=pool",
    },
    right_a_list={"return (scores, decoded)": "return [scores.clone(), decoded.clone()]"},
)


def score_and_decode__right_cloned_in_between(x, score, decode):
    decode_graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(decode_graph):
        decoded = decode(x)
    score_graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(score_graph, pool=decode_graph.pool()):
        scores = score(x)

    def run():
        score_graph.replay()
        kept = scores.clone()
        decode_graph.replay()
        return kept, decoded

    return run


changed(
    sum_of_gradients,
    for_show={
        "weight.grad = torch.zeros_like(weight)": "…\ntotal = torch.zeros_like(weight)",
        "graph.replay()": "…\ntotal += 2 * weight.detach() * batch.square()",
        "return weight.grad": "return total",
    },
    not_filled={"torch.zeros_like": "torch.empty_like"},
    nothing={"weight.grad = torch.zeros_like(weight)": ""},
    after_the_capture={
        "weight.grad = torch.zeros_like(weight)\n": "",
        "for batch in batches:": "weight.grad = torch.zeros_like(weight)\nfor batch in batches:",
    },
    zeroed_each_time={"graph.replay()": "weight.grad.zero_()\n…"},
    ones={"torch.zeros_like": "torch.ones_like"},
    without_the_graph={"graph.replay()": "(weight * x).square().sum().backward()"},
    no_copy={"x.copy_(batch)": ""},
    right_added_outside={
        "weight.grad = torch.zeros_like(weight)": "total = torch.zeros_like(weight)",
        "graph.replay()": "…\ntotal += weight.grad",
        "return weight.grad": "return total",
    },
    right_by_autograd_grad={
        "loss.backward()": "weight.grad += torch.autograd.grad(loss, weight)[0]",
    },
    right_a_product={"torch.zeros_like(weight)": "0 * weight.detach()"},
)


changed(
    make_server,
    for_show={
        "return out[:count].clone()":
            "made = [first]\n"
            "for _ in range(count):\n"
            "    made.append(int(table[made[-1]]))\n"
            "return torch.tensor(made[1:])",
    },
    a_list={"out[:count].clone()": "out[:count].tolist()"},
    prepared_by_hand={
        "token.copy_(next_token)": "",
        "position.add_(1)": "",
        "graph.replay()": "…\ntoken.copy_(next_token)\nposition.add_(1)",
    },
    moved_by_hand={"position.add_(1)": "", "graph.replay()": "…\nposition.add_(1)"},
    not_fed={"token.copy_(next_token)": ""},
    not_moved={"position.add_(1)": ""},
    rebound={"token.copy_(next_token)": "token = next_token"},
    moved_by_a_new_tensor={"position.add_(1)": "position = position + 1"},
    not_reset={"position.zero_()": ""},
    no_first_token={"token.fill_(first)": ""},
    all_of_it={"out[:count].clone()": "out.clone()"},
    one_replay={"for _ in range(count):": "for _ in range(1):"},
    first_overwritten={"out[position] = next_token": "out[position] = token"},
    right_by_copies={
        "token.fill_(first)": "token.copy_(torch.tensor([first]))",
        "position.zero_()": "position.copy_(torch.tensor([0]))",
    },
    right_written_by_index={
        "token.copy_(next_token)": "token[:] = next_token",
        "position.add_(1)": "position += 1",
    },
)
