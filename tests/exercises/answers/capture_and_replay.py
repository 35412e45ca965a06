"""Answers to the exercises of *Capture and replay*: wrong ones, and other right ones (`__right_`)."""

from helpers.capture import capture_step


def serve__replayed_too_early(graph, static_input, static_output, requests):
    results = []
    for request in requests:
        graph.replay()
        static_input.copy_(request)
        results.append(static_output.clone())
    return results


def serve__without_the_graph(graph, static_input, static_output, requests):
    return [2 * request for request in requests]


def serve__one_replay(graph, static_input, static_output, requests):
    graph.replay()
    return [2 * request for request in requests]


def serve__a_graph_for_each(graph, static_input, static_output, requests):
    results = []
    for request in requests:
        own_graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(own_graph):
            result = 2 * request
        own_graph.replay()
        results.append(result.clone())
    return results


def serve__right_copied_into_new_tensors(graph, static_input, static_output, requests):
    results = [torch.empty_like(request) for request in requests]
    for request, result in zip(requests, results, strict=True):
        static_input.copy_(request)
        graph.replay()
        result.copy_(static_output)
    return results


changed(
    serve,
    without_clone={"results.append(static_output.clone())": "results.append(static_output)"},
    new_tensor_under_the_old_name={
        "static_input.copy_(request)": "static_input = request",
        "(static_output.clone())": "(static_output.clone().view_as(static_input))",
    },
)


def captured(net, static_input):
    with torch.no_grad():
        net(static_input)

    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph), torch.no_grad():
        static_output = net(static_input)
    return graph, static_output


def make_predictor__network_not_kept(net, sample):
    static_input = sample.clone()
    graph, static_output = captured(net, static_input)

    def predict(inputs):
        static_input.copy_(inputs)
        graph.replay()
        return static_output.clone()

    return predict


def make_predictor__eager(net, sample):
    return net


def make_predictor__nothing_copied(net, sample):
    static_input = sample.clone()
    graph, static_output = captured(net, static_input)

    def predict(inputs):
        graph.replay()
        return static_output.clone()

    predict.static_input = static_input
    return predict


def make_predictor__copied_too_late(net, sample):
    static_input = sample.clone()
    graph, static_output = captured(net, static_input)

    def predict(inputs):
        graph.replay()
        static_input.copy_(inputs)
        return static_output.clone()

    return predict


def make_predictor__on_the_callers_sample(net, sample):
    graph, static_output = captured(net, sample)

    def predict(inputs):
        sample.copy_(inputs)
        graph.replay()
        return static_output.clone()

    return predict


def make_predictor__with_gradients(net, sample):
    static_input = sample.clone()
    net(static_input)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        static_output = net(static_input)

    def predict(inputs):
        static_input.copy_(inputs)
        graph.replay()
        return static_output.detach().clone()

    return predict


def make_predictor__captured_each_time(net, sample):
    def predict(inputs):
        graph, static_output = captured(net, inputs.clone())
        graph.replay()
        return static_output.clone()

    return predict


def make_predictor__value_read(net, sample):
    static_input = sample.clone()
    with torch.no_grad():
        net(static_input)

    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph), torch.no_grad():
        static_output = net(static_input)
        static_output.max().item()
    return graph.replay


def make_predictor__right_on_a_side_stream(net, sample):
    static_input = sample.clone()
    side_stream = torch.cuda.Stream()
    side_stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side_stream), torch.no_grad():
        for _ in range(3):
            net(static_input)
    torch.cuda.current_stream().wait_stream(side_stream)

    graph = torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(graph, stream=side_stream):
        static_output = net(static_input)

    def predict(inputs):
        static_input.copy_(inputs)
        graph.replay()
        return torch.empty_like(static_output).copy_(static_output)

    predict.weights = list(net.parameters())
    return predict


def make_predictor__right_with_the_helper(net, sample):
    with torch.no_grad():
        replay = capture_step(net, sample.clone())

    def predict(inputs):
        return replay(inputs).clone()

    return predict


changed(
    make_predictor,
    no_warm_up={
        "with torch.no_grad():\n"
        "    net(static_input)": "",
        "predict.net = net": "",
    },
    right_in_inference_mode={
        "with torch.no_grad():": "with torch.inference_mode():",
        "(graph), torch.no_grad():": "(graph), torch.inference_mode():",
    },
    right_without_waits={
        "with torch.no_grad():": "with torch.cuda.stream(torch.cuda.Stream()), torch.no_grad():",
    },
)


changed(
    make_predictor__network_not_kept,
    in_half={
        "static_input.copy_(inputs)": "static_input.copy_(inputs.half())",
        "return predict":
            "predict.net = net\n"
            "return predict",
    },
    kept_output={"return static_output.clone()": "return static_output"},
    freed_sample={
        "static_input = sample.clone()": "graph, static_output = captured(net, sample.clone())",
        "graph, static_output = captured(net, static_input)":
            "static_input = torch.empty_like(sample)",
    },
    nothing_returned={"return static_output.clone()": "static_output.clone()"},
)


def scaled(net, static_input):
    with torch.no_grad():
        net(static_input)

    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph), torch.no_grad():
        outputs = net(static_input)
        static_output = outputs / outputs.abs().max()
    return graph, static_output


def make_scaled_predictor__copied_too_late(net, sample):
    static_input = sample.clone()
    graph, static_output = scaled(net, static_input)

    def predict(inputs):
        graph.replay()
        static_input.copy_(inputs)
        return static_output.clone()

    return predict


def make_scaled_predictor__kept_output(net, sample):
    static_input = sample.clone()
    graph, static_output = scaled(net, static_input)

    def predict(inputs):
        static_input.copy_(inputs)
        graph.replay()
        return static_output

    return predict


def make_scaled_predictor__read_before_the_capture(net, sample):
    static_input = sample.clone()
    with torch.no_grad():
        largest = net(static_input).abs().max().item()

    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph), torch.no_grad():
        static_output = net(static_input) / largest

    def predict(inputs):
        static_input.copy_(inputs)
        graph.replay()
        return static_output.clone()

    return predict


changed(
    make_scaled_predictor__read_before_the_capture,
    divided_outside={
        "largest = net(static_input).abs().max().item()": "net(static_input)",
        "static_output = net(static_input) / largest": "outputs = net(static_input)",
        "return static_output.clone()": "return outputs / outputs.abs().max().item()",
    },
    right_with_amax={
        "with torch.no_grad():": "with torch.inference_mode():",
        "largest = net(static_input).abs().max().item()": "net(static_input)",
        "with torch.cuda.graph(graph), torch.no_grad():\n"
        "    static_output = net(static_input) / largest":
            "with torch.cuda.graph(graph), torch.inference_mode():\n"
            "    static_output = net(static_input)\n"
            "    static_output /= static_output.abs().amax()",
    },
)


def one_step(step, state):
    step(state)

    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        state.copy_(step(state))
    return graph


def trajectory__without_clone(step, start, count):
    state = start.clone()
    graph = one_step(step, state)
    states = []
    for _ in range(count):
        graph.replay()
        states.append(state)
    return states


def trajectory__start_overwritten(step, start, count):
    graph = one_step(step, start)
    states = []
    for _ in range(count):
        graph.replay()
        states.append(start.clone())
    return states


def trajectory__warm_up_moved_it(step, start, count):
    state = start.clone()
    for _ in range(3):
        state.copy_(step(state))

    graph = one_step(step, state)
    states = []
    for _ in range(count):
        graph.replay()
        states.append(state.clone())
    return states


def trajectory__all_in_one_graph(step, start, count):
    step(start)
    states = [start]
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(count):
            states.append(step(states[-1]))
    graph.replay()
    return states[1:]


def trajectory__eager(step, start, count):
    states = [start]
    for _ in range(count):
        states.append(step(states[-1]))
    return states[1:]


def trajectory__right_state_put_back(step, start, count):
    state = start.clone()
    for _ in range(3):
        state.copy_(step(state))
    state.copy_(start)

    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        state.copy_(step(state))

    states = torch.empty(count, *start.shape, device="cuda")
    for number in range(count):
        graph.replay()
        states[number] = state
    return list(states)


changed(
    trajectory,
    not_written_back={
        "state.copy_(step(state))": "new_state = step(state)",
        "states.append(state.clone())": "states.append(new_state.clone())",
    },
    new_tensor_under_the_old_name={"state.copy_(step(state))": "state = step(state)"},
    no_warm_up={
        "step(state)\n"
        "graph = torch.cuda.CUDAGraph()":
            "graph = torch.cuda.CUDAGraph()",
    },
    right_copied_outside={
        "state.copy_(step(state))": "new_state = step(state)",
        "states.append(state.clone())":
            "state.copy_(new_state)\n"
            "states.append(new_state.clone())",
    },
)
