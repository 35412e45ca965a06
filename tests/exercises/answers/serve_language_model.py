"""Answers to the exercises of *Serve a language model*: wrong ones, and other right ones (`__right_`)."""

import torch


def capture_in_pieces__right_by_context(step, x):
    static_x = x.clone()
    step(static_x, lambda function, *inputs: function(*inputs))
    pool, pieces = torch.cuda.graph_pool_handle(), []

    def enter():
        graph = torch.cuda.CUDAGraph()
        context = torch.cuda.graph(graph, pool=pool)
        context.__enter__()
        pieces.append((graph.replay, context))

    def outside(function, *inputs):
        pieces[-1][1].__exit__(None, None, None)
        output = function(*inputs).clone()
        pieces.append((lambda: output.copy_(function(*inputs)), None))
        enter()
        return output

    enter()
    result = step(static_x, outside)
    pieces[-1][1].__exit__(None, None, None)

    def replay(new_x):
        static_x.copy_(new_x)
        for call, _ in pieces:
            call()
        return result.clone()

    return replay


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


def decode_ahead__eager(step, batches):
    tokens = torch.zeros_like(batches[0]).cuda()
    for batch in batches:
        batch = batch.cuda()
        tokens = step(torch.where(batch < 0, tokens, batch))
        yield tokens.cpu()


def decode_ahead__right_two_buffers(step, batches):
    static_tokens = batches[0].cuda()
    previous = static_tokens.clone()

    def step_now(new_tokens):
        known = new_tokens >= 0
        tokens = previous * ~known + new_tokens * known
        previous.copy_(step(tokens))

    replay = capture_step(step_now, static_tokens)
    buffers = [torch.empty_like(batches[0]).pin_memory() for _ in range(2)]
    events = [torch.cuda.Event() for _ in range(2)]
    for number, batch in enumerate(batches):
        static_tokens.copy_(batch.pin_memory(), non_blocking=True)
        replay()
        buffers[number % 2].copy_(previous, non_blocking=True)
        events[number % 2].record()
        if number:
            events[(number - 1) % 2].synchronize()
            yield buffers[(number - 1) % 2]
    torch.cuda.synchronize()
    yield buffers[number % 2]


def decode_ahead__right_tokens_in_the_static_input(step, batches):
    static_tokens = batches[0].cuda()
    replay = capture_step(step, static_tokens)
    computed, waiting = static_tokens.clone(), None
    for batch in batches:
        new_tokens = batch.pin_memory().to("cuda", non_blocking=True)
        static_tokens.copy_(torch.where(new_tokens < 0, computed, new_tokens))
        computed.copy_(replay())
        tokens = torch.empty_like(batch).pin_memory()
        tokens.copy_(computed, non_blocking=True)
        event = torch.cuda.Event()
        event.record()
        if waiting:
            waiting[1].synchronize()
            yield waiting[0]
        waiting = tokens, event
    waiting[1].synchronize()
    yield waiting[0]


changed(
    decode_ahead,
    on_the_gpu={"torch.empty_like(batch).pin_memory()": "torch.empty_like(static_tokens)"},
    token_0_goes_on={
        "torch.where(new_tokens < 0, previous, new_tokens)": "new_tokens.clamp(min=0)",
    },
    three_steps_ahead={
        "len(unread) == 2": "len(unread) == 4",
        "tokens, copied = unread.pop()\n"
        "copied.synchronize()\n"
        "yield tokens":
            "for tokens, copied in unread:\n"
            "    copied.synchronize()\n"
            "    yield tokens",
    },
    reads_at_once={"copied.record()": "…\ncopied.synchronize()"},
    never_waits={
        "tokens, copied = unread.pop(0)\n"
        "copied.synchronize()": "tokens, copied = unread.pop(0)",
        "tokens, copied = unread.pop()\n"
        "copied.synchronize()": "tokens, copied = unread.pop()",
    },
    one_buffer={
        "unread = []": "…\ntokens = torch.empty_like(batches[0]).pin_memory()",
        "tokens = torch.empty_like(batch).pin_memory()": "",
    },
    batch_stays={"static_tokens.copy_(batch.pin_memory(), non_blocking=True)": ""},
    last_one_missing={
        "tokens, copied = unread.pop()\n"
        "copied.synchronize()\n"
        "yield tokens": "",
    },
)
