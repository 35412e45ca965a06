"""Answers to the exercises of *Serve a language model*: wrong ones, and other right ones (`__right_`)."""

import torch


changed(
    capture_in_pieces,
    eager={
        "return replay": "return lambda x: step(x, lambda function, *inputs: function(*inputs))",
    },
    captured_in_each_call={"return replay": "return lambda x: capture_in_pieces(step, x)(x)"},
    x_stays={"static_x.copy_(new_x)": "static_x.copy_(static_x)"},
    called_in_the_capture_only={"pieces.append(lambda: output.copy_(function(*inputs)))": ""},
    output_not_copied={"output.copy_(function(*inputs))": "function(*inputs)"},
    a_pool_each={"pool=pool": "pool=torch.cuda.graph_pool_handle()"},
    one_input={
        "def outside(function, *inputs)": "def outside(function, inputs)",
        "output = function(*inputs)": "output = function(inputs)",
        "output.copy_(function(*inputs))": "output.copy_(function(inputs))",
    },
    not_cloned={"result.clone()": "result"},
    eager_step_in_each_call={
        "static_x.copy_(new_x)": "step(new_x, lambda function, *inputs: function(*inputs))\n…",
    },
    no_warm_up={"step(static_x, lambda function, *inputs: function(*inputs))": ""},
    captured_on_the_callers_x={"x.clone()": "x"},
    right_output_cloned={"output = function(*inputs)": "….clone()"},
)


def serve_requests__eager(step, sizes, slots):
    def run(x, lengths):
        starts = torch.tensor([0, *lengths], device="cuda").cumsum(0)
        return step(x, starts, max(lengths))

    return run


def serve_requests__captured_in_each_call(step, sizes, slots):
    def run(x, lengths):
        starts = torch.tensor([0, *lengths], device="cuda").cumsum(0)
        return capture_step(partial(step, starts=starts, longest=max(lengths)), x.clone())()

    return run


changed(
    serve_requests,
    one_token_too_few={"longest=size": "longest=size - 1"},
    free_slots_keep_rows={"starts[1:] = len(x)": ""},
    free_slots_end_at_zero={"starts[1:] = len(x)": "starts[1:] = 0"},
    x_stays={
        "static_x[:len(x)] = x": "",
        "starts[1:len(lengths) + 1] = torch.tensor(lengths, device='cuda').cumsum(0)": "",
    },
    starts_stay={"starts[1:len(lengths) + 1] = torch.tensor(lengths, device='cuda').cumsum(0)": ""},
    not_cloned={"[:len(x)].clone()": "[:len(x)]"},
    a_pool_each={"static_x[:size], pool=pool": "static_x[:size]"},
    always_the_largest={"min((size for size in sizes if size >= len(x)))": "sizes[-1]"},
    right_largest_maximum={"longest=size": "longest=sizes[-1]"},
)
