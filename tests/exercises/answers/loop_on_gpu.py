"""Answers to the exercises of *Loop on the GPU*: wrong ones, and other right ones (`__right_`)."""


# typical wrong answers, which the lesson's check refuses
def looped(before, body, limit, last="set_condition", lost=False, least=0, endless=-1):
    """The body's runs, with a fault, if one is asked for."""
    count, flag, condition = 0, False, False
    for number in range(limit + 2):
        for operation in body if number else before:
            count += operation in ("tick", "lost tick")
            if operation == "tick" or (lost and operation == "lost tick"):
                flag = count < limit
            if operation == last:
                condition = flag
        if not condition and number >= least:
            return number
    return endless


def iterations__a_tick_sets_the_condition(before, body, limit):
    return looped(before, body, limit, last="tick")


def iterations__a_new_tensor_is_read(before, body, limit):
    return looped(before, body, limit, lost=True)


def iterations__at_least_once(before, body, limit):
    return looped(before, body, limit, least=1)


def iterations__an_endless_loop_counts(before, body, limit):
    return looped(before, body, limit, endless=limit)


def iterations__until_the_limit(before, body, limit):
    return max(0, limit - 1)


def iterations__the_flag_decides(before, body, limit):
    count, flag = 0, False
    for number in range(limit + 2):
        for operation in body if number else before:
            count += operation in ("tick", "lost tick")
            if operation == "tick":
                flag = count < limit
        if not flag:
            return number
    return -1


def iterations__right_by_a_large_bound(before, body, limit):
    state = {"count": 0, "flag": False, "condition": False}

    def launch(operations):
        for operation in operations:
            if operation.endswith("tick"):
                state["count"] += 1
            if operation == "tick":
                state["flag"] = state["count"] < limit
            elif operation == "set_condition":
                state["condition"] = state["flag"]

    launch(before)
    number = 0
    while state["condition"] and number < 10_000:
        launch(body)
        number += 1
    return -1 if state["condition"] else number


def turns(
    step, tokens, end, limit, choose=torch.where, any_row=torch.any, limited=True, early=False
):
    answers = torch.full((len(tokens), limit), -1, device="cuda")
    places = torch.arange(limit, device="cuda")
    count = torch.zeros((), dtype=torch.long, device="cuda")
    alive = torch.ones_like(tokens, dtype=torch.bool)
    going = alive.any()

    def turn():
        tokens.copy_(choose(alive, step(tokens), tokens))
        if early:
            alive.logical_and_(tokens != end)
        here = alive[:, None] & (places == count)
        answers.copy_(torch.where(here, tokens[:, None], answers))
        count.add_(1)
        alive.logical_and_(tokens != end)
        if limited:
            alive.logical_and_(count < limit)
        going.copy_(any_row(alive))

    return turn, [answers, going, tokens, count, alive]


def captured_turns(*arguments, **options):
    turn, state = turns(*arguments, **options)
    with unchanged(*state):
        return capture_step(turn), *state[:2]


def capture_turn__tokens_go_on(step, tokens, end, limit):
    return captured_turns(step, tokens, end, limit, choose=lambda alive, new, old: new)


def capture_turn__end_token_missing(step, tokens, end, limit):
    return captured_turns(step, tokens, end, limit, early=True)


def capture_turn__first_end_stops_all(step, tokens, end, limit):
    return captured_turns(step, tokens, end, limit, any_row=torch.all)


def capture_turn__no_limit(step, tokens, end, limit):
    return captured_turns(step, tokens, end, limit, limited=False)


def capture_turn__warm_up_stays(step, tokens, end, limit):
    turn, (answers, going, *_) = turns(step, tokens, end, limit)
    return capture_step(turn), answers, going


def capture_turn__asks_the_cpu(step, tokens, end, limit):
    turn, state = turns(step, tokens, end, limit)
    with unchanged(*state):
        return capture_step(lambda: turn() if state[1].item() else None), *state[:2]


def capture_turn__eager(step, tokens, end, limit):
    turn, (answers, going, *_) = turns(step, tokens, end, limit)
    return turn, answers, going


def capture_turn__right_by_index(step, tokens, end, limit):
    answers = torch.full((len(tokens), limit), -1, device="cuda")
    count = torch.zeros(1, dtype=torch.long, device="cuda")
    going = torch.ones(1, dtype=torch.bool, device="cuda")

    def turn():
        column = count.clamp(max=limit - 1)
        last = answers.index_select(1, (count - 1).clamp(0, limit - 1))[:, 0]
        alive = ((last != end) & (last != -1) | (count == 0)) & (count < limit)
        new = torch.where(alive, step(tokens), tokens)
        kept = answers.index_select(1, column)[:, 0]
        answers.index_copy_(1, column, torch.where(alive, new, kept)[:, None])
        tokens.copy_(new)
        count.add_(1)
        going.copy_((alive & (new != end)).any() & (count < limit))

    with unchanged(tokens, answers, count, going):
        replay = capture_step(turn)
    return replay, answers, going


def captured_step(parameters, update, warmup=0):
    @torch.no_grad()
    def step():
        for p in parameters:
            p -= update(p.grad, [other.grad for other in parameters])

    return capture_step(step, warmup=warmup)


def all_finite(gradients):
    return torch.stack([gradient.isfinite().all() for gradient in gradients]).all()


def guarded_step__still_multiplied(parameters, rate):
    return captured_step(parameters, lambda mine, every: rate * mine * all_finite(every))


def guarded_step__warm_up_stays(parameters, rate):
    def update(mine, every):
        return torch.where(all_finite(every), rate * mine, 0)

    return captured_step(parameters, update, warmup=3)


def guarded_step__each_for_itself(parameters, rate):
    def update(mine, every):
        return torch.where(mine.isfinite().all(), rate * mine, 0)

    return captured_step(parameters, update)


def guarded_step__element_by_element(parameters, rate):
    return captured_step(parameters, lambda mine, _: (rate * mine).nan_to_num(0, 0, 0))


def guarded_step__infinities_pass(parameters, rate):
    def update(mine, every):
        return torch.where(torch.stack([one.isnan().any() for one in every]).any(), 0, rate * mine)

    return captured_step(parameters, update)


def guarded_step__an_if(parameters, rate):
    return captured_step(parameters, lambda mine, every: rate * mine if all_finite(every) else 0)


def guarded_step__right_by_masking(parameters, rate):
    def update(mine, every):
        return (rate * mine).masked_fill(~all_finite(every), 0)

    return captured_step(parameters, update)


def guarded_step__D11_any_for_all(parameters, rate):
    @torch.no_grad()
    def step():
        finite = torch.stack([p.grad.isfinite().any() for p in parameters]).any()
        for p in parameters:
            p -= torch.where(finite, rate * p.grad, 0)

    with unchanged(*parameters):
        return capture_step(step)


def guarded_step__D10_data_replaced(parameters, rate):
    @torch.no_grad()
    def step():
        finite = torch.stack([p.grad.isfinite().all() for p in parameters]).all()
        for p in parameters:
            p -= torch.where(finite, rate * p.grad, 0)

    saved = [p.detach().clone() for p in parameters]
    replay = capture_step(step)
    for p, value in zip(parameters, saved):
        p.data = value
    return replay


def guarded_step__R5_name_rebound(parameters, rate):
    @torch.no_grad()
    def step():
        finite = torch.stack([p.grad.isfinite().all() for p in parameters]).all()
        for p in parameters:
            p = torch.where(finite, p - rate * p.grad, p)

    with unchanged(*parameters):
        return capture_step(step)


def turn_of(step, tokens, end, limit, fill=-1, index=False):
    """capture_turn with one thing changed."""
    answers = torch.full((len(tokens), limit), fill, device="cuda")
    places = torch.arange(limit, device="cuda")
    count = torch.zeros((), dtype=torch.long, device="cuda")
    alive = torch.ones_like(tokens, dtype=torch.bool)
    going = alive.any()

    def turn():
        tokens.copy_(torch.where(alive, step(tokens), tokens))
        if index:
            answers.index_copy_(
                1, count[None], torch.where(alive, tokens, -1)[:, None]
            )
        else:
            here = alive[:, None] & (places == count)
            answers.copy_(torch.where(here, tokens[:, None], answers))
        count.add_(1)
        alive.logical_and_(tokens != end).logical_and_(count < limit)
        going.copy_(alive.any())

    with unchanged(tokens, answers, count, alive, going):
        replay = capture_step(turn)
    return replay, answers, going


def capture_turn__D12_index_past_the_limit(step, tokens, end, limit):
    return turn_of(step, tokens, end, limit, index=True)


def capture_turn__R5_answers_of_zeros(step, tokens, end, limit):
    return turn_of(step, tokens, end, limit, fill=0)
