"""Answers to the exercises of *Serve a language model*: wrong ones, and other right ones (`__right_`)."""

import torch


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

    def step_ahead(new_tokens):
        previous.copy_(step(torch.where(new_tokens < 0, previous, new_tokens)))

    replay = capture_step(step_ahead, static_tokens)
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


changed(
    decode_ahead,
    reads_at_once={"copied.record()": "…\ncopied.synchronize()"},
    one_buffer={
        "unread = []": "…\ntokens = torch.empty_like(batches[0]).pin_memory()",
        "tokens = torch.empty_like(batch).pin_memory()": "",
    },
    batch_stays={"static_tokens.copy_(batch.pin_memory(), non_blocking=True)": ""},
    on_the_gpu={"torch.empty_like(batch).pin_memory()": "torch.empty_like(static_tokens)"},
    token_0_goes_on={
        "torch.where(new_tokens < 0, previous, new_tokens)": "new_tokens.clamp(min=0)",
    },
    batch_not_pinned={"batch.pin_memory(), non_blocking=True": "batch"},
    never_waits={
        "tokens, copied = unread.pop(0)\n"
        "copied.synchronize()": "tokens, copied = unread.pop(0)",
    },
    last_one_missing={
        "tokens, copied = unread.pop()\ncopied.synchronize()\nyield tokens": "",
    },
)
