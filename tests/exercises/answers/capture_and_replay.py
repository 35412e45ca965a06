"""Answers to the exercises of *Capture and replay*: wrong ones, and other right ones (`__right_`)."""

from helpers.capture import capture_step


def make_predictor__eager(net, sample):
    return net


def make_predictor__captured_each_time(net, sample):
    return lambda inputs: make_predictor(net, inputs)(inputs)


def make_predictor__right_with_the_helper(net, sample):
    with torch.no_grad():
        replay = capture_step(net, sample.clone())

    def predict(inputs):
        return replay(inputs).clone()

    return predict


changed(
    make_predictor,
    network_not_kept={"predict.net = net": ""},
    in_half={"static_input.copy_(inputs)": "static_input.copy_(inputs.half())"},
    nothing_copied={
        "static_input.copy_(inputs)": "",
        "predict.net = net": "predict.keeps = [net, static_input]",
    },
    copied_too_late={
        "static_input.copy_(inputs)": "graph.replay()",
        "graph.replay()": "static_input.copy_(inputs)",
    },
    nothing_returned={"return static_output.clone()": "static_output.clone()"},
    no_warm_up={"with torch.no_grad():\n    net(static_input)": ""},
    with_gradients={
        "torch.cuda.graph(graph), torch.no_grad()": "torch.cuda.graph(graph)",
        "static_output.clone()": "static_output.detach().clone()",
    },
    freed_sample={"def predict(inputs):": "static_input = torch.empty_like(sample)\n…"},
    value_read={"static_output = net(static_input)": "…\nstatic_output.max().item()"},
    right_in_inference_mode={
        "with torch.no_grad():": "with torch.inference_mode():",
        "(graph), torch.no_grad():": "(graph), torch.inference_mode():",
    },
    right_without_waits={
        "with torch.no_grad():": "with torch.cuda.stream(torch.cuda.Stream()), torch.no_grad():",
    },
)


changed(
    make_scaled_predictor,
    copied_too_late={
        "static_input.copy_(inputs)": "graph.replay()",
        "graph.replay()": "static_input.copy_(inputs)",
    },
    read_before_the_capture={
        "():\n    net(static_input)": "():\n    largest = net(static_input).abs().max().item()",
        "largest = outputs.abs().max()": "",
    },
    divided_outside={
        "largest = outputs.abs().max()\nstatic_output = outputs / largest": "",
        "return static_output.clone()": "return outputs / outputs.abs().max().item()",
    },
    right_with_amax={
        "with torch.no_grad():": "with torch.inference_mode():",
        "(graph), torch.no_grad()": "(graph), torch.inference_mode()",
        "outputs.abs().max()": "outputs.abs().amax()",
        "outputs / largest": "outputs.div_(largest)",
    },
)


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


changed(
    trajectory,
    warm_up_moved_it={
        "state = start.clone()":
            "…\n"
            "for _ in range(3):\n"
            "    state.copy_(step(state))",
    },
    not_written_back={
        "state.copy_(step(state))": "new_state = step(state)",
        "states.append(state.clone())": "states.append(new_state.clone())",
    },
    new_tensor_under_the_old_name={"state.copy_(step(state))": "state = step(state)"},
    no_warm_up={"step(state)\ngraph = torch.cuda.CUDAGraph()": "graph = torch.cuda.CUDAGraph()"},
    right_copied_outside={
        "state.copy_(step(state))": "new_state = step(state)",
        "states.append(state.clone())": "state.copy_(new_state)\nstates.append(new_state.clone())",
    },
)
