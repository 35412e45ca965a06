"""Answers to the exercises of *Serve a language model*: wrong ones, and other right ones (`__right_`)."""

import torch


def masked_attention(keys, values, copy_query=True, keep=torch.clone):
    static_q = torch.ones(keys.shape[1], device="cuda")
    length = torch.ones((), dtype=torch.long, device="cuda")

    def attend_step(q):
        behind = torch.arange(len(keys), device="cuda") >= length
        scores = (keys @ q).masked_fill(behind, -torch.inf)
        return scores.softmax(0) @ values.masked_fill(behind[:, None], 0)

    replay = capture_step(attend_step, static_q)

    def attend(q, new_length):
        length.fill_(new_length)
        return keep(replay(q) if copy_query else replay())

    return attend


def graph_attention__not_cloned(keys, values):
    return masked_attention(keys, values, keep=lambda result: result)


def graph_attention__query_stays(keys, values):
    return masked_attention(keys, values, copy_query=False)


def graph_attention__captured_in_each_call(keys, values):
    def attend(q, length):
        return capture_step(lambda q: (keys[:length] @ q).softmax(0) @ values[:length], q.clone())()

    return attend


def graph_attention__eager(keys, values):
    return lambda q, length: (keys[:length] @ q).softmax(0) @ values[:length]


def graph_attention__D4_a_graph_for_each_length(keys, values):
    static_q = torch.zeros(keys.shape[1], device="cuda")
    replays = {}
    for n in range(1, len(keys) + 1):
        replays[n] = capture_step(lambda q, n=n: (keys[:n] @ q).softmax(0) @ values[:n], static_q)
    return lambda q, length: replays[length](q).clone()


def graph_attention__right_by_where(keys, values):
    static_q = torch.zeros(keys.shape[1], device="cuda")
    length = torch.ones(1, dtype=torch.long, device="cuda")
    rows = torch.arange(len(keys), device="cuda")

    def attend_step(q, length):
        used = rows < length
        weights = torch.where(used, (keys @ q).exp(), 0)
        return (weights / weights.sum()) @ torch.where(used[:, None], values, 0)

    replay = capture_step(attend_step, static_q, length)
    return lambda q, new_length: replay(q, torch.tensor([new_length], device="cuda")).clone()


changed(
    graph_attention,
    R5_a_row_too_many={
        "rows = torch.arange(len(keys), device='cuda')": "",
        "rows >=": "torch.arange(len(keys), device='cuda') >",
    },
    R5_mask_added={
        "rows = torch.arange(len(keys), device='cuda')": "",
        "behind = rows >= length": "behind = torch.arange(len(keys), device='cuda') >= length",
        "scores = (keys @ q).masked_fill(behind, -torch.inf)":
            "scores = keys @ q + torch.where(behind, -torch.inf, 0.0)",
    },
)


def in_pieces(step, x, again=torch.Tensor.copy_, copy_x=True, one_pool=True, keep=torch.clone):
    """The solution, with one thing done differently."""
    static_x = x.clone()
    step(static_x, lambda function, *inputs: function(*inputs))
    pool = torch.cuda.graph_pool_handle()
    graphs, pieces = [], []

    def begin():
        graphs.append(torch.cuda.CUDAGraph())
        graphs[-1].capture_begin(pool=pool if one_pool else torch.cuda.graph_pool_handle())
        pieces.append(graphs[-1].replay)

    def outside(function, *inputs):
        graphs[-1].capture_end()
        output = function(*inputs)
        if again:
            pieces.append(lambda: again(output, function(*inputs)))
        begin()
        return output

    side_stream = torch.cuda.Stream()
    side_stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side_stream):
        begin()
        result = step(static_x, outside)
        graphs[-1].capture_end()
    torch.cuda.current_stream().wait_stream(side_stream)

    def replay(new_x):
        if copy_x:
            static_x.copy_(new_x)
        for piece in pieces:
            piece()
        return keep(result)

    return replay


def capture_in_pieces__called_in_the_capture_only(step, x):
    return in_pieces(step, x, again=None)


def capture_in_pieces__output_not_copied(step, x):
    return in_pieces(step, x, again=lambda output, new: new)


def capture_in_pieces__x_stays(step, x):
    return in_pieces(step, x, copy_x=False)


def capture_in_pieces__a_pool_each(step, x):
    return in_pieces(step, x, one_pool=False)


def capture_in_pieces__not_cloned(step, x):
    return in_pieces(step, x, keep=lambda result: result)


def capture_in_pieces__eager(step, x):
    return lambda x: step(x, lambda function, *inputs: function(*inputs))


def capture_in_pieces__captured_in_each_call(step, x):
    return lambda x: in_pieces(step, x)(x)


def capture_in_pieces__eager_step_in_each_call(step, x):
    replay = in_pieces(step, x)

    def call(new_x):
        step(new_x, lambda function, *inputs: function(*inputs))
        return replay(new_x)

    return call


def capture_in_pieces__no_warm_up(step, x):
    first = []

    def cold(*given):
        if not first:
            first.append(True)
            return given[0]
        return step(*given)

    return in_pieces(cold, x)


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
    D7_captured_on_the_callers_x={
        "static_x = x.clone()\n"
        "step(static_x, lambda function, *inputs: function(*inputs))":
            "step(x.clone(), lambda function, *inputs: function(*inputs))",
        "result = step(static_x, outside)": "result = step(x, outside)",
        "def replay(new_x):": "def call(new_x):",
        "static_x.copy_(new_x)": "x.copy_(new_x)",
        "return replay": "return call",
    },
)


def all_sizes(sizes, size):
    return size


def requests_served(
    step,
    sizes,
    slots,
    longest_of=all_sizes,
    copy_tokens=True,
    clear=True,
    copy_starts=True,
    largest=False,
    clone=True,
    one_pool=True,
):
    """The solution, with one thing done in another way."""
    static_x = torch.zeros(sizes[-1], 4, device="cuda")
    starts = torch.zeros(slots + 1, dtype=torch.long, device="cuda")
    pool = torch.cuda.graph_pool_handle() if one_pool else None
    replays = {}
    for size in reversed(sizes):
        step_of_size = partial(step, starts=starts, longest=longest_of(sizes, size))
        replays[size] = capture_step(step_of_size, static_x[:size], pool=pool)

    def run(x, lengths):
        if copy_tokens:
            static_x[: len(x)] = x
        if clear:
            starts[1:] = len(x)
        if copy_starts:
            starts[1 : len(lengths) + 1] = torch.tensor(lengths, device="cuda").cumsum(0)
        size = sizes[-1] if largest else min(size for size in sizes if size >= len(x))
        result = replays[size]()[: len(x)]
        return result.clone() if clone else result

    return run


def serve_requests__one_token_too_few(step, sizes, slots):
    return requests_served(step, sizes, slots, longest_of=lambda sizes, size: size - 1)


def serve_requests__free_slots_keep_rows(step, sizes, slots):
    return requests_served(step, sizes, slots, clear=False)


def serve_requests__x_stays(step, sizes, slots):
    return requests_served(step, sizes, slots, copy_tokens=False, copy_starts=False)


def serve_requests__starts_stay(step, sizes, slots):
    return requests_served(step, sizes, slots, copy_starts=False)


def serve_requests__not_cloned(step, sizes, slots):
    return requests_served(step, sizes, slots, clone=False)


def serve_requests__a_pool_each(step, sizes, slots):
    return requests_served(step, sizes, slots, one_pool=False)


def serve_requests__always_the_largest(step, sizes, slots):
    return requests_served(step, sizes, slots, largest=True)


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


def serve_requests__right_largest_maximum(step, sizes, slots):
    return requests_served(step, sizes, slots, longest_of=lambda sizes, size: sizes[-1])


def decoded_ahead(step, batches, pinned=True, select=torch.where, ahead=1, wait=True, copy=True):
    """The solution, with one thing done in another way."""
    static_tokens = batches[0].cuda()
    previous = torch.zeros_like(static_tokens)

    def step_now(new_tokens):
        previous.copy_(step(select(new_tokens < 0, previous, new_tokens)))

    replay = capture_step(step_now, static_tokens)
    unread = []
    for batch in [*batches, None]:
        if batch is not None:
            if copy:
                new_tokens = batch.pin_memory() if pinned else batch
                static_tokens.copy_(new_tokens, non_blocking=pinned)
            replay()
            tokens = torch.empty_like(batch).pin_memory()
            tokens.copy_(previous, non_blocking=True)
            event = torch.cuda.Event()
            event.record()
            unread.append((tokens, event))
        while unread and (len(unread) > ahead or batch is None):
            tokens, event = unread.pop(0)
            if wait:
                event.synchronize()
            yield tokens


def decode_ahead__reads_at_once(step, batches):
    return decoded_ahead(step, batches, ahead=0)


def decode_ahead__token_0_goes_on(step, batches):
    return decoded_ahead(step, batches, select=lambda unknown, old, new: new.clamp(min=0))


def decode_ahead__never_waits(step, batches):
    return decoded_ahead(step, batches, wait=False)


def decode_ahead__batch_stays(step, batches):
    return decoded_ahead(step, batches, copy=False)


def decode_ahead__last_one_missing(step, batches):
    waiting = None
    for tokens in decoded_ahead(step, batches):
        if waiting is not None:
            yield waiting
        waiting = tokens


def decode_ahead__three_steps_ahead(step, batches):
    return decoded_ahead(step, batches, ahead=3)


def decode_ahead__eager(step, batches):
    tokens = torch.zeros_like(batches[0]).cuda()
    for batch in batches:
        batch = batch.cuda()
        tokens = step(torch.where(batch < 0, tokens, batch))
        yield tokens.cpu()


def decode_ahead__on_the_gpu(step, batches):
    for tokens in decoded_ahead(step, batches):
        yield tokens.cuda()


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
