"""Answers to the exercises of *Speculate tokens*: wrong ones, and other right ones (`__right_`)."""


changed(
    graph_verify,
    drafts_not_copied={
        "with unchanged(text, input_pos):\n"
        "    replay = capture_step(step, static_drafts)": "kept = []",
        "return lambda drafts: replay(drafts).clone()":
            "def verify(drafts):\n"
            "    if not kept:\n"
            "        with unchanged(text, input_pos):\n"
            "            kept.append(capture_step(lambda: step(drafts)))\n"
            "    return kept[0]().clone()\n"
            "return verify",
    },
    all_agreements={"agreements.cumprod(dim=1).sum": "agreements.sum"},
    own_token_lost={"accepted + 1": "accepted"},
    drafts_written={
        "text.scatter_(1, positions + 1, choices)": "text.scatter_(1, positions[:, 1:], drafts)",
    },
    text_written={"unchanged(text, input_pos)": "unchanged(input_pos)"},
    moved_outside={
        "input_pos.add_(accepted + 1)": "",
        "return lambda drafts: replay(drafts).clone()":
            "def verify(drafts):\n"
            "    accepted = replay(drafts).clone()\n"
            "    input_pos.add_(accepted.tolist()[0][0] + 1)\n"
            "    return accepted\n"
            "return verify",
    },
    right_by_minimum={"agreements.cumprod(dim=1)": "agreements.long().cummin(dim=1).values"},
)


changed(
    graph_speculate,
    last_draft_unread={"torch.cat((input_pos - 1, input_pos), dim=1)": "input_pos"},
    text_written={"unchanged(text, input_pos)": "unchanged(input_pos)"},
    eager={"return capture_step(step)": "return step"},
    right_one_more={
        "torch.cat((input_pos - 1, input_pos), dim=1)": "input_pos",
        "range(k)": "range(k + 1)",
        "torch.cat(read, dim=1)": "torch.cat(read[:k + 1], dim=1)",
    },
)


changed(
    graph_steps,
    clamped_before_each_step={
        "step()\ninput_pos.clamp_(max=limit)": "input_pos.clamp_(max=limit)\nstep()",
    },
    one_step_a_graph={
        "range(every)": "range(1)",
        "return capture_step(steps, warmup=1)":
            "replay = capture_step(steps, warmup=1)\n"
            "return lambda: [replay() for _ in range(every)]",
    },
    text_written={"unchanged(text, input_pos)": "unchanged(input_pos)"},
    eager={"capture_step(steps, warmup=1)": "steps"},
    right_minimum={
        "def steps():": "bound = torch.full_like(input_pos, limit)\n…",
        "input_pos.clamp_(max=limit)": "torch.minimum(input_pos, bound, out=input_pos)",
    },
    no_limit={"input_pos.clamp_(max=limit)": ""},
)


def graph_lookup__nonzero(text, input_pos, k):
    def step():
        drafts = []
        for row, last in zip(text, input_pos[:, 0], strict=True):
            latest = (row[:last] == row[last]).nonzero()[-1]
            drafts.append(row[latest + torch.arange(1, k + 1, device="cuda")])
        return torch.stack(drafts)

    replay = capture_step(step)
    return lambda: replay().clone()


changed(
    graph_lookup,
    first_occurrence={
        "(text == last) & (positions < input_pos)": "text == last",
        "torch.where(matches, positions, 0).amax": "matches.long().argmax",
    },
    itself={"positions < input_pos": "positions <= input_pos"},
    left_over={"positions < input_pos": "positions != input_pos"},
    looked_up_before={
        "replay = capture_step(step)": "drafts = step()\nreplay = capture_step(lambda: drafts + 0)",
    },
    right_cummax={
        "torch.where(matches, positions, 0).amax(dim=1, keepdim=True)":
            "(matches * positions).cummax(dim=1).values[:, -1:]",
    },
)
