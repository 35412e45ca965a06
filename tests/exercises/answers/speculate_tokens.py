"""Answers to the exercises of *Speculate tokens*: wrong ones, and other right ones (`__right_`)."""


def verify_once(model, text, input_pos, kv_cache, drafts, prefix=True, own=1, writes_drafts=False):
    positions = input_pos + torch.arange(drafts.shape[1] + 1, device="cuda")
    tokens = torch.cat((text.gather(1, input_pos), drafts), dim=1)
    choices = all_logits(model, tokens, positions, kv_cache).argmax(dim=-1)
    if writes_drafts:
        text.scatter_(1, positions[:, 1:], drafts)
    else:
        text.scatter_(1, positions + 1, choices)
    agreements = choices[:, :-1] == drafts
    if prefix:
        agreements = agreements.cumprod(dim=1)
    accepted = agreements.sum(dim=1, keepdim=True)
    input_pos.add_(accepted + own)
    return accepted


def captured_verify(model, text, input_pos, kv_cache, k, **changes):
    static_drafts = torch.zeros(len(text), k, dtype=torch.long, device="cuda")

    def step(drafts):
        return verify_once(model, text, input_pos, kv_cache, drafts, **changes)

    with unchanged(text, input_pos):
        return capture_step(step, static_drafts)


def graph_verify__all_agreements(model, text, input_pos, kv_cache, k):
    replay = captured_verify(model, text, input_pos, kv_cache, k, prefix=False)
    return lambda drafts: replay(drafts).clone()


def graph_verify__own_token_lost(model, text, input_pos, kv_cache, k):
    replay = captured_verify(model, text, input_pos, kv_cache, k, own=0)
    return lambda drafts: replay(drafts).clone()


def graph_verify__drafts_written(model, text, input_pos, kv_cache, k):
    replay = captured_verify(model, text, input_pos, kv_cache, k, writes_drafts=True)
    return lambda drafts: replay(drafts).clone()


def graph_verify__not_cloned(model, text, input_pos, kv_cache, k):
    return captured_verify(model, text, input_pos, kv_cache, k)


def graph_verify__eager(model, text, input_pos, kv_cache, k):
    return lambda drafts: verify_once(model, text, input_pos, kv_cache, drafts)


def graph_verify__warm_up_kept(model, text, input_pos, kv_cache, k):
    static_drafts = torch.zeros(len(text), k, dtype=torch.long, device="cuda")

    def step(drafts):
        return verify_once(model, text, input_pos, kv_cache, drafts)

    replay = capture_step(step, static_drafts)
    return lambda drafts: replay(drafts).clone()


def graph_verify__moved_outside(model, text, input_pos, kv_cache, k):
    static_drafts = torch.zeros(len(text), k, dtype=torch.long, device="cuda")

    def step(drafts):
        own = input_pos.clone()
        return verify_once(model, text, own, kv_cache, drafts)

    replay = capture_step(step, static_drafts)

    def verify(drafts):
        accepted = replay(drafts).clone()
        input_pos.add_(accepted.tolist()[0][0] + 1)
        return accepted

    return verify


def graph_verify__drafts_not_copied(model, text, input_pos, kv_cache, k):
    kept = []

    def verify(drafts):
        if not kept:

            def step():
                return verify_once(model, text, input_pos, kv_cache, drafts)

            with unchanged(text, input_pos):
                kept.append(capture_step(step))
        return kept[0]().clone()

    return verify


def graph_verify__right_by_hand(model, text, input_pos, kv_cache, k):
    static_drafts = torch.zeros(len(text), k, dtype=torch.long, device="cuda")
    with unchanged(text, input_pos):
        verify_once(model, text, input_pos, kv_cache, static_drafts)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        accepted = verify_once(model, text, input_pos, kv_cache, static_drafts)

    def verify(drafts):
        static_drafts.copy_(drafts)
        graph.replay()
        return accepted.clone()

    return verify


def speculate_once(
    model, drafter, text, input_pos, kv_cache, draft_cache, k, prefix=True, more=True
):
    positions = input_pos + torch.arange(k + 1, device="cuda")
    read = [text.gather(1, input_pos)]
    for i in range(k + more):
        logits = drafter(read[-1], positions[:, i : i + 1], draft_cache)
        read.append(logits.argmax(dim=-1, keepdim=True))
    read = torch.cat(read[: k + 1], dim=1)
    choices = all_logits(model, read, positions, kv_cache).argmax(dim=-1)
    text.scatter_(1, positions + 1, choices)
    agreements = choices[:, :-1] == read[:, 1:]
    if prefix:
        agreements = agreements.cumprod(dim=1)
    input_pos.add_(agreements.sum(dim=1, keepdim=True) + 1)


def captured_speculate(*state, clean=True, **changes):
    with unchanged(*state[2:4] if clean else ()):
        return capture_step(lambda: speculate_once(*state, **changes))


def graph_speculate__last_draft_unread(model, drafter, text, input_pos, kv_cache, draft_cache, k):
    return captured_speculate(model, drafter, text, input_pos, kv_cache, draft_cache, k, more=False)


def graph_speculate__warm_up_kept(model, drafter, text, input_pos, kv_cache, draft_cache, k):
    return captured_speculate(
        model, drafter, text, input_pos, kv_cache, draft_cache, k, clean=False
    )


def graph_speculate__eager(model, drafter, text, input_pos, kv_cache, draft_cache, k):
    state = model, drafter, text, input_pos, kv_cache, draft_cache, k
    return lambda: speculate_once(*state)


def graph_speculate__right_one_more(model, drafter, text, input_pos, kv_cache, draft_cache, k):
    return captured_speculate(model, drafter, text, input_pos, kv_cache, draft_cache, k)


def graph_steps__D15_clamped_before_each_step(step, text, input_pos, limit, every):
    def steps():
        for _ in range(every):
            input_pos.clamp_(max=limit)
            step()

    with unchanged(text, input_pos):
        return capture_step(steps, warmup=1)


def graph_steps__one_step_a_graph(step, text, input_pos, limit, every):
    def limited():
        step()
        input_pos.clamp_(max=limit)

    with unchanged(text, input_pos):
        replay = capture_step(limited, warmup=1)
    return lambda: [replay() for _ in range(every)]


def graph_steps__warm_up_kept(step, text, input_pos, limit, every):
    def steps():
        for _ in range(every):
            step()
            input_pos.clamp_(max=limit)

    return capture_step(steps, warmup=1)


def graph_steps__eager(step, text, input_pos, limit, every):
    def steps():
        for _ in range(every):
            step()
            input_pos.clamp_(max=limit)

    return steps


def graph_steps__right_minimum(step, text, input_pos, limit, every):
    bound = torch.full_like(input_pos, limit)

    def steps():
        for _ in range(every):
            step()
            torch.minimum(input_pos, bound, out=input_pos)

    with unchanged(text, input_pos):
        return capture_step(steps, warmup=1)


changed(
    graph_steps,
    no_limit={"input_pos.clamp_(max=limit)": ""},
)


def lookup(text, input_pos, k, low=lambda positions, input_pos: positions < input_pos):
    """Drafts after the latest position that low lets through."""
    positions = torch.arange(text.shape[1], device="cuda")
    matches = (text == text.gather(1, input_pos)) & low(positions, input_pos)
    latest = torch.where(matches, positions, 0).amax(dim=1, keepdim=True)
    return text.gather(1, latest + torch.arange(1, k + 1, device="cuda"))


def graph_lookup__first_occurrence(text, input_pos, k):
    def step():
        matches = text == text.gather(1, input_pos)
        first = matches.long().argmax(dim=1, keepdim=True)
        return text.gather(1, first + torch.arange(1, k + 1, device="cuda"))

    replay = capture_step(step)
    return lambda: replay().clone()


def graph_lookup__itself(text, input_pos, k):
    def step():
        return lookup(text, input_pos, k, lambda positions, last: positions <= last)

    replay = capture_step(step)
    return lambda: replay().clone()


def graph_lookup__left_over(text, input_pos, k):
    def step():
        return lookup(text, input_pos, k, lambda positions, last: positions != last)

    replay = capture_step(step)
    return lambda: replay().clone()


def graph_lookup__nonzero(text, input_pos, k):
    def step():
        drafts = []
        for row, last in zip(text, input_pos[:, 0], strict=True):
            latest = (row[:last] == row[last]).nonzero()[-1]
            drafts.append(row[latest + torch.arange(1, k + 1, device="cuda")])
        return torch.stack(drafts)

    replay = capture_step(step)
    return lambda: replay().clone()


def graph_lookup__not_cloned(text, input_pos, k):
    return capture_step(lambda: lookup(text, input_pos, k))


def graph_lookup__eager(text, input_pos, k):
    return lambda: lookup(text, input_pos, k)


def graph_lookup__looked_up_before(text, input_pos, k):
    drafts = lookup(text, input_pos, k)
    replay = capture_step(lambda: drafts + 0)
    return lambda: replay().clone()


def graph_lookup__right_by_hand(text, input_pos, k):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        drafts = lookup(text, input_pos, k)

    def replay():
        graph.replay()
        return drafts.clone()

    return replay


def graph_lookup__right_cummax(text, input_pos, k):
    positions = torch.arange(text.shape[1], device="cuda")
    offsets = torch.arange(1, k + 1, device="cuda")

    def step():
        matches = (text == text.gather(1, input_pos)) & (positions < input_pos)
        latest = (matches * positions).cummax(dim=1).values[:, -1:]
        return text.gather(1, latest + offsets)

    replay = capture_step(step)
    return lambda: replay().clone()
