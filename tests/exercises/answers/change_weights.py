"""Answers to the exercises of *Change weights under live graphs*: wrong ones, and other right ones (`__right_`)."""


def captured_predictor(net, sample):
    values, scale = quantise_rows(net.head.weight)
    replay = capture_step(lambda inputs: net.body(inputs) @ (values * scale).T, sample.clone())
    return lambda inputs: replay(inputs).clone(), values, scale


def int8_predictor__head_forgotten(net, sample):
    predict, values, scale = captured_predictor(net, sample)
    return predict, net.load_state_dict


def int8_predictor__assigned(net, sample):
    predict, values, scale = captured_predictor(net, sample)
    return predict, lambda state_dict: net.load_state_dict(state_dict, assign=True)


def int8_predictor__scale_forgotten(net, sample):
    predict, values, scale = captured_predictor(net, sample)

    def update(state_dict):
        net.load_state_dict(state_dict)
        values.copy_(quantise_rows(net.head.weight)[0])

    return predict, update


def int8_predictor__body_forgotten(net, sample):
    predict, values, scale = captured_predictor(net, sample)

    def update(state_dict):
        for captured, new in zip(
            (values, scale), quantise_rows(state_dict["head.weight"]), strict=True
        ):
            captured.copy_(new)

    return predict, update


def int8_predictor__captured_again(net, sample):
    replays = []

    def update(state_dict=None):
        if state_dict:
            net.load_state_dict(state_dict)
        replays.append(captured_predictor(net, sample)[0])

    update()
    return lambda inputs: replays[-1](inputs), update


def int8_predictor__not_int8(net, sample):
    replay = capture_step(lambda inputs: net.head(net.body(inputs)), sample.clone())
    return lambda inputs: replay(inputs).clone(), net.load_state_dict


def int8_predictor__not_cloned(net, sample):
    values, scale = quantise_rows(net.head.weight)
    replay = capture_step(lambda inputs: net.body(inputs) @ (values * scale).T, sample.clone())

    def update(state_dict):
        net.load_state_dict(state_dict)
        new_values, new_scale = quantise_rows(net.head.weight)
        values.copy_(new_values)
        scale.copy_(new_scale)

    return replay, update


def int8_predictor__quantised_in_the_graph(net, sample):
    def step(inputs):
        values, scale = quantise_rows(net.head.weight)
        return net.body(inputs) @ (values * scale).T

    replay = capture_step(step, sample.clone())
    return lambda inputs: replay(inputs).clone(), net.load_state_dict


def int8_predictor__right_by_hand(net, sample):
    static_inputs = sample.clone()
    values, scale = quantise_rows(net.head.weight)
    net.body(static_inputs) @ (values * scale).T
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        outputs = net.body(static_inputs) @ (values * scale).T

    def predict(inputs):
        static_inputs.copy_(inputs)
        graph.replay()
        return outputs.clone()

    def update(state_dict):
        for name, weight in net.named_parameters():
            weight.data.copy_(state_dict[name])
        new_values, new_scale = quantise_rows(net.head.weight)
        values.copy_(new_values)
        scale.copy_(new_scale)

    return predict, update


def captured_layer(layer, sample):
    replay = capture_step(layer, sample.clone())
    return lambda inputs: replay(inputs).clone()


def int8_predictor__D3_floats_kept(net, sample):
    def product():
        scale = net.head.weight.abs().amax(dim=1, keepdim=True) / 127
        return (net.head.weight / scale).round().to(torch.int8) * scale

    weight = product()
    replay = capture_step(lambda inputs: net.body(inputs) @ weight.T, sample.clone())

    def update(state_dict):
        net.load_state_dict(state_dict)
        weight.copy_(product())

    return lambda inputs: replay(inputs).clone(), update


def adapter_server__subtracted(layer, sample):
    deltas = []

    def merge(A, B):
        if deltas:
            unmerge()
        deltas.append(B @ A)
        layer.weight.add_(deltas[-1])

    def unmerge():
        layer.weight.sub_(deltas.pop())

    return captured_layer(layer, sample), merge, unmerge


def adapter_server__added(layer, sample):
    base = layer.weight.clone()

    def merge(A, B):
        layer.weight.add_(B @ A)

    return captured_layer(layer, sample), merge, lambda: layer.weight.copy_(base)


def adapter_server__base_not_cloned(layer, sample):
    base = layer.weight

    def merge(A, B):
        layer.weight.copy_(base + B @ A)

    return captured_layer(layer, sample), merge, lambda: layer.weight.copy_(base)


def adapter_server__R4_captured_again_in_merge(layer, sample):
    base = layer.weight.clone()
    replay = capture_step(layer, sample.clone())

    def predict(inputs):
        return replay(inputs).clone()

    def merge(A, B):
        nonlocal replay
        layer.weight.copy_(base + B @ A)
        replay = capture_step(layer, sample.clone())

    def unmerge():
        layer.weight.copy_(base)

    return predict, merge, unmerge


def adapter_server__right_delta_in_the_graph(layer, sample):
    delta = torch.zeros_like(layer.weight)
    replay = capture_step(lambda inputs: inputs @ (layer.weight + delta).T, sample.clone())

    def merge(A, B):
        delta.copy_(B @ A)

    return lambda inputs: replay(inputs).clone(), merge, delta.zero_


def adapter_server__right_data(layer, sample):
    base = layer.weight.detach().clone()

    def merge(A, B):
        layer.weight.data.copy_(torch.addmm(base, B, A))

    def unmerge():
        layer.load_state_dict({"weight": base})

    return captured_layer(layer, sample), merge, unmerge


def stacked(weight, n_slots, rank, fill=torch.zeros):
    A = fill(n_slots, rank, weight.shape[1], device="cuda")
    B = fill(n_slots, weight.shape[0], rank, device="cuda")
    return A, B


def rows_step(weight, A, B, x, slots):
    added = x[:, None] @ A[slots].mT @ B[slots].mT
    return x @ weight.T + added[:, 0]


def rows_in_graph(step, sample):
    """Capture step(x, slots); returns a function of both."""
    static_slots = torch.zeros(len(sample), dtype=torch.long, device="cuda")
    replay = capture_step(step, sample.clone(), static_slots)
    return lambda inputs, slots: replay(inputs, slots).clone()


def load_into(A, B):
    """A function that copies an adapter into its slot."""

    def load(slot, new_A, new_B):
        A[slot].copy_(new_A)
        B[slot].copy_(new_B)

    return load


def adapter_rows__slots_frozen(weight, n_slots, rank, sample):
    A, B = stacked(weight, n_slots, rank)
    slots_used = torch.zeros(len(sample), dtype=torch.long, device="cuda")
    replay = capture_step(lambda x: rows_step(weight, A, B, x, slots_used), sample.clone())
    return lambda inputs, slots: replay(inputs).clone(), load_into(A, B)


def adapter_rows__load_rebinds(weight, n_slots, rank, sample):
    A, B = stacked(weight, n_slots, rank)
    predict = rows_in_graph(lambda x, slots: rows_step(weight, A, B, x, slots), sample)

    def load(slot, new_A, new_B):
        nonlocal A, B
        A = torch.cat((A[:slot], new_A[None], A[slot + 1 :]))
        B = torch.cat((B[:slot], new_B[None], B[slot + 1 :]))

    return predict, load


def adapter_rows__one_for_all(weight, n_slots, rank, sample):
    A, B = stacked(weight, n_slots, rank)

    def step(x, slots):
        return rows_step(weight, A, B, x, slots[:1].expand_as(slots))

    return rows_in_graph(step, sample), load_into(A, B)


def adapter_rows__random_slots(weight, n_slots, rank, sample):
    A, B = stacked(weight, n_slots, rank, fill=torch.randn)
    predict = rows_in_graph(lambda x, slots: rows_step(weight, A, B, x, slots), sample)
    return predict, load_into(A, B)


def adapter_rows__captured_by_load(weight, n_slots, rank, sample):
    A, B = stacked(weight, n_slots, rank)
    slots_used = torch.zeros(len(sample), dtype=torch.long, device="cuda")

    def step(x, slots):
        return rows_step(weight, A, B, x, slots)

    replays = [capture_step(step, sample.clone(), slots_used)]

    def load(slot, new_A, new_B):
        A[slot], B[slot] = new_A, new_B
        replays.append(capture_step(step, sample.clone(), slots_used))

    return lambda inputs, slots: replays[-1](inputs, slots).clone(), load


def adapter_rows__a_graph_per_slot(weight, n_slots, rank, sample):
    A, B = stacked(weight, n_slots, rank)
    static_inputs = sample.clone()
    replays = []
    for slot in range(n_slots):

        def step(x, slot=slot):
            return x @ weight.T + x @ A[slot].T @ B[slot].T

        replays.append(capture_step(step, static_inputs))

    def predict(inputs, slots):
        outputs = torch.stack([replay(inputs) for replay in replays])
        return outputs[slots, torch.arange(len(slots), device="cuda")]

    return predict, load_into(A, B)


def adapter_rows__right_all_slots(weight, n_slots, rank, sample):
    A, B = stacked(weight, n_slots, rank)
    slots_used = torch.zeros(len(sample), dtype=torch.long, device="cuda")
    numbers = torch.arange(len(sample), device="cuda")

    def step(x, slots):
        added = x @ A.mT @ B.mT  # (n_slots, rows, out)
        return x @ weight.T + added[slots, numbers]

    replay = capture_step(step, sample.clone(), slots_used)

    def load(slot, new_A, new_B):
        A[slot], B[slot] = new_A, new_B

    return lambda inputs, slots: replay(inputs, slots).clone(), load


def adapter_rows__right_products(weight, n_slots, rank, sample):
    deltas = torch.zeros(n_slots, *weight.shape, device="cuda")
    slots_used = torch.zeros(len(sample), dtype=torch.long, device="cuda")

    def step(x, slots):
        return torch.bmm(weight + deltas[slots], x[..., None])[..., 0]

    replay = capture_step(step, sample.clone(), slots_used)

    def load(slot, new_A, new_B):
        torch.mm(new_B, new_A, out=deltas[slot])

    return lambda inputs, slots: replay(inputs, slots).clone(), load


def copy_all(net, weights):
    for parameter, value in zip(net.parameters(), weights, strict=True):
        parameter.copy_(value)


def in_graph(net, sample, publish):
    """The solution's predict, and this publish."""
    replay = capture_step(net, sample.clone())
    return lambda inputs: replay(inputs).clone(), publish


def published__no_wait_before(net, sample, stream):
    def publish(weights):
        with torch.cuda.stream(stream):
            copy_all(net, weights)
        torch.cuda.current_stream().wait_stream(stream)

    return in_graph(net, sample, publish)


def published__the_cpu_waits(net, sample, stream):
    def publish(weights):
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            copy_all(net, weights)
        stream.synchronize()

    return in_graph(net, sample, publish)


def published__eager(net, sample, stream):
    def publish(weights):
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            copy_all(net, weights)
        torch.cuda.current_stream().wait_stream(stream)

    return net, publish


def published__on_the_current_stream(net, sample, stream):
    return in_graph(net, sample, lambda weights: copy_all(net, weights))


def published__waits_for_the_replays_alone(net, sample, stream):
    replay = capture_step(net, sample.clone())
    replayed = torch.cuda.Event()
    replayed.record()

    def predict(inputs):
        outputs = replay(inputs).clone()
        replayed.record()
        return outputs

    def publish(weights):
        stream.wait_event(replayed)
        with torch.cuda.stream(stream):
            copy_all(net, weights)
        torch.cuda.current_stream().wait_stream(stream)

    return predict, publish


def published__D2_waits_in_predict_only(net, sample, stream):
    replay = capture_step(net, sample.clone())

    def predict(inputs):
        torch.cuda.current_stream().wait_stream(stream)
        return replay(inputs).clone()

    def publish(weights):
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            copy_all(net, weights)

    return predict, publish


def published__right_events(net, sample, stream):
    replay = capture_step(net, sample.clone())
    written = torch.cuda.Event()
    written.record()

    def predict(inputs):
        written.wait()
        return replay(inputs).clone()

    def publish(weights):
        ready = torch.cuda.current_stream().record_event()  # replays are done, weights computed
        stream.wait_event(ready)
        with torch.cuda.stream(stream):
            copy_all(net, weights)
            written.record()
        for value in weights:
            value.record_stream(stream)

    return predict, publish


def published__right_second_set(net, sample, stream):
    parameters = list(net.parameters())
    second_set = [parameter.clone() for parameter in parameters]

    def publish(weights):
        current = torch.cuda.current_stream()
        stream.wait_event(current.record_event())  # weights are computed
        with torch.cuda.stream(stream):
            torch._foreach_copy_(second_set, weights)
            stream.wait_stream(current)  # the replays are done
            torch._foreach_copy_(parameters, second_set)
        current.wait_stream(stream)

    return in_graph(net, sample, publish)


changed(
    published__D2_waits_in_predict_only,
    right_recorded_and_waits_in_predict={
        "copy_all(net, weights)":
            "copy_all(net, weights)\n"
            "for value in weights:\n"
            "    value.record_stream(stream)",
    },
)
