"""Answers to the exercises of *Change weights under live graphs*: wrong ones, and other right ones (`__right_`)."""


def captured_layer(layer, sample):
    replay = capture_step(layer, sample.clone())
    return lambda inputs: replay(inputs).clone()


def adapter_server__right_data(layer, sample):
    base = layer.weight.detach().clone()

    def merge(A, B):
        layer.weight.data.copy_(torch.addmm(base, B, A))

    def unmerge():
        layer.load_state_dict({"weight": base})

    return captured_layer(layer, sample), merge, unmerge


changed(
    adapter_server,
    added={"layer.weight.copy_(base + B @ A)": "layer.weight.add_(B @ A)"},
    captured_again_in_merge={
        "layer.weight.copy_(base + B @ A)":
            "nonlocal replay\n"
            "…\n"
            "replay = capture_step(layer, sample.clone())",
    },
)


changed(
    adapter_server__right_data,
    subtracted={
        "base = layer.weight.detach().clone()": "deltas = []",
        "layer.weight.data.copy_(torch.addmm(base, B, A))":
            "if deltas:\n"
            "    unmerge()\n"
            "deltas.append(B @ A)\n"
            "layer.weight.add_(deltas[-1])",
        "layer.load_state_dict({'weight': base})": "layer.weight.sub_(deltas.pop())",
    },
)


changed(
    adapter_rows,
    a_graph_per_slot={
        "replay = capture_step(step, sample.clone(), static_slots)":
            "replays = []\n"
            "for slot in range(n_slots):\n"
            "    slots = torch.full_like(static_slots, slot)\n"
            "    one = capture_step(lambda x, slots=slots: step(x, slots), sample.clone())\n"
            "    replays.append(one)",
        "return replay(inputs, slots).clone()":
            "outputs = torch.stack([replay(inputs) for replay in replays])\n"
            "return outputs[slots, torch.arange(len(slots), device='cuda')]",
    },
    slots_frozen={
        "(step, sample.clone(), static_slots)": "(lambda x: step(x, static_slots), sample.clone())",
        "replay(inputs, slots)": "replay(inputs)",
    },
    load_rebinds={
        "A[slot].copy_(new_A)":
            "nonlocal A, B\nA = torch.cat((A[:slot], new_A[None], A[slot + 1:]))",
        "B[slot].copy_(new_B)": "B = torch.cat((B[:slot], new_B[None], B[slot + 1:]))",
    },
    one_for_all={"def step(x, slots):": "…\n    slots = slots[:1].expand_as(slots)"},
    random_slots={
        "A = weight.new_zeros(n_slots, rank, weight.shape[1])":
            "A = torch.randn(n_slots, rank, weight.shape[1], device='cuda')",
        "B = weight.new_zeros(n_slots, weight.shape[0], rank)":
            "B = torch.randn(n_slots, weight.shape[0], rank, device='cuda')",
    },
    captured_by_load={
        "A[slot].copy_(new_A)": "nonlocal replay\n…",
        "B[slot].copy_(new_B)": "…\nreplay = capture_step(step, sample.clone(), static_slots)",
    },
    right_all_slots={
        "def step(x, slots):": "numbers = torch.arange(len(sample), device='cuda')\n…",
        "x[:, None] @ A[slots].mT @ B[slots].mT": "x @ A.mT @ B.mT",
        "added[:, 0]": "added[slots, numbers]",
    },
)


changed(
    published,
    the_cpu_waits={
        "stream.wait_stream(current)": "torch.cuda.synchronize()",
        "current.wait_stream(stream)": "stream.synchronize()",
    },
    eager={"replay(inputs).clone()": "net(inputs)"},
    on_the_current_stream={"torch.cuda.stream(stream)": "torch.cuda.stream(current)"},
    waits_for_the_replays_alone={
        "def predict(inputs):\n    return replay(inputs).clone()":
            "replayed = torch.cuda.current_stream().record_event()\n"
            "def predict(inputs):\n"
            "    outputs = replay(inputs).clone()\n"
            "    replayed.record()\n"
            "    return outputs",
        "stream.wait_stream(current)": "stream.wait_event(replayed)",
    },
    waits_in_predict_only={
        "return replay(inputs).clone()": "torch.cuda.current_stream().wait_stream(stream)\n…",
        "current.wait_stream(stream)": "",
    },
    right_recorded_and_waits_in_predict={
        "return replay(inputs).clone()": "torch.cuda.current_stream().wait_stream(stream)\n…",
        "parameter.copy_(value)": "…\nvalue.record_stream(stream)",
        "current.wait_stream(stream)": "",
    },
)
