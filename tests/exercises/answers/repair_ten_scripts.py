"""Answers to the exercises of *Ten broken scripts*: wrong ones, and other right ones (`__right_`)."""


def guide__binds_the_dict_anew(model, calls):
    static = {"noise": calls[0]["noise"].clone()}
    static["added"] = {name: value.clone() for name, value in calls[0]["added"].items()}
    with torch.no_grad():
        warm_up(lambda: model(**static))
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            image = model(**static)
    images = []
    for call in calls:
        static["noise"].copy_(call["noise"])
        static["added"] = call["added"]
        graph.replay()
        images.append(image.clone())
    return images


def guide__writes_into_the_callers_tensors(model, calls):
    static = calls[0]
    with torch.no_grad():
        warm_up(lambda: model(**static))
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            image = model(**static)
    images = []
    for call in calls:
        static["noise"].copy_(call["noise"])
        for name, value in call["added"].items():
            static["added"][name].copy_(value)
        graph.replay()
        images.append(image.clone())
    return images


def guide__keeps_no_copy_of_the_result(model, calls):
    static = {"noise": calls[0]["noise"].clone()}
    static["added"] = {name: value.clone() for name, value in calls[0]["added"].items()}
    with torch.no_grad():
        warm_up(lambda: model(**static))
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            image = model(**static)
    images = []
    for call in calls:
        static["noise"].copy_(call["noise"])
        for name, value in call["added"].items():
            static["added"][name].copy_(value)
        graph.replay()
        images.append(image)
    return images


def guide__captures_in_every_call(model, calls):
    images = []
    for call in calls:
        graph = torch.cuda.CUDAGraph()
        with torch.no_grad(), torch.cuda.graph(graph):
            image = model(**call)
        graph.replay()
        images.append(image.clone())
    return images


def guide__runs_eagerly(model, calls):
    with torch.no_grad():
        return [model(**call) for call in calls]


def guide__right_with_capture_step(model, calls):
    def step(noise, text, size):
        return model(noise, {"text": text, "size": size})

    def flat(call):
        return call["noise"], call["added"]["text"], call["added"]["size"]

    with torch.no_grad():
        replay = capture_step(step, *[tensor.clone() for tensor in flat(calls[0])])
    return [replay(*flat(call)).clone() for call in calls]


def fine_tune__puts_the_weights_back_alone(model, optimizer, batches):
    x, y = (tensor.clone() for tensor in batches[0])

    def step():
        optimizer.zero_grad()
        loss = mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    warm_up(step)
    model.load_state_dict(before)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step()
    losses = []
    for batch in batches:
        x.copy_(batch[0])
        y.copy_(batch[1])
        graph.replay()
        losses.append(loss.clone())
    return losses


def fine_tune__does_not_warm_up(model, optimizer, batches):
    x, y = (tensor.clone() for tensor in batches[0])

    def step():
        optimizer.zero_grad()
        loss = mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step()
    losses = []
    for batch in batches:
        x.copy_(batch[0])
        y.copy_(batch[1])
        graph.replay()
        losses.append(loss.clone())
    return losses


def accumulate__has_no_gradients_at_first(model, optimizer, batches):
    graphed = torch.cuda.make_graphed_callables(model, (batches[0][0].clone(),))
    losses = []
    for number, (x, y) in enumerate(batches):
        if number % 2 == 0:
            optimizer.zero_grad(set_to_none=False)
        loss = mse_loss(graphed(x), y)
        loss.backward()
        losses.append(loss.detach())
        if number % 2 == 1:
            optimizer.step()
    return losses


def accumulate__steps_after_every_batch(model, optimizer, batches):
    graphed = torch.cuda.make_graphed_callables(model, (batches[0][0].clone(),))
    losses = []
    for x, y in batches:
        optimizer.zero_grad()
        loss = mse_loss(graphed(x), y)
        loss.backward()
        losses.append(loss.detach())
        optimizer.step()
    return losses


def accumulate__right_with_cloned_gradients(model, optimizer, batches):
    graphed = torch.cuda.make_graphed_callables(model, (batches[0][0].clone(),))
    losses = []
    for number, (x, y) in enumerate(batches):
        if number % 2 == 0:
            optimizer.zero_grad()
        loss = mse_loss(graphed(x), y)
        loss.backward()
        if number % 2 == 0:
            for weight in model.parameters():
                weight.grad = weight.grad.clone()
        losses.append(loss.detach())
        if number % 2 == 1:
            optimizer.step()
    return losses


def train_in_parts__takes_the_sample_with_gradients_on(model, optimizer, batches):
    sample = model[0](batches[0][0]).detach()
    model[1] = torch.cuda.make_graphed_callables(model[1], (sample,))
    losses = []
    for x, y in batches:
        optimizer.zero_grad()
        loss = mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return losses


def train_in_parts__lets_the_output_require_a_gradient(model, optimizer, batches):
    with torch.no_grad():
        sample = model[0](batches[0][0])
    model[1] = torch.cuda.make_graphed_callables(model[1], (sample,))
    losses = []
    for x, y in batches:
        optimizer.zero_grad()
        loss = mse_loss(model(x).requires_grad_(), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return losses


def train_seeded__is_at_that_seed_already(model, optimizer, batches):
    x, y = (tensor.clone() for tensor in batches[0])

    def step(number):
        torch.cuda.manual_seed(number)
        optimizer.zero_grad()
        loss = mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    with unchanged(model, optimizer):
        warm_up(lambda: step(0))
    torch.cuda.manual_seed(1)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step(1)
    losses = []
    for inputs, targets in batches:
        x.copy_(inputs)
        y.copy_(targets)
        graph.replay()
        losses.append(loss.clone())
    return losses


def train_seeded__seeds_once(model, optimizer, batches):
    x, y = (tensor.clone() for tensor in batches[0])

    def step():
        optimizer.zero_grad()
        loss = mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    with unchanged(model, optimizer):
        warm_up(step)
    losses = []
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step()
    torch.cuda.manual_seed(1)
    for inputs, targets in batches:
        x.copy_(inputs)
        y.copy_(targets)
        graph.replay()
        losses.append(loss.clone())
    return losses


def ensemble__clones_too_late(models, requests):
    x = requests[0].clone()
    pool = torch.cuda.graph_pool_handle()
    captured = []
    with torch.no_grad():
        for model in reversed(models):
            warm_up(partial(model, x))
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=pool):
                scores = model(x)
            captured.append((graph, scores))
    answers = []
    for request in requests:
        x.copy_(request)
        for graph, _ in reversed(captured):
            graph.replay()
        answers.append(torch.stack([scores.clone() for _, scores in reversed(captured)]).mean(0))
    return answers


def ensemble__adds_up_in_the_last_scores(models, requests):
    x = requests[0].clone()
    pool = torch.cuda.graph_pool_handle()
    captured = []
    with torch.no_grad():
        for model in reversed(models):
            warm_up(partial(model, x))
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=pool):
                scores = model(x)
            captured.append((graph, scores))
    answers = []
    for request in requests:
        x.copy_(request)
        for graph, _ in captured:
            graph.replay()
        total = captured[-1][1]
        for _, scores in captured[:-1]:
            total += scores
        answers.append(total.div_(len(models)))
    return answers


def ensemble__right_in_the_order_of_capture(models, requests):
    x = requests[0].clone()
    pool = torch.cuda.graph_pool_handle()
    captured = []
    with torch.no_grad():
        for model in reversed(models):
            warm_up(partial(model, x))
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=pool):
                scores = model(x)
            captured.append((graph, scores))
    answers = []
    for request in requests:
        x.copy_(request)
        for graph, _ in captured:
            graph.replay()
        answers.append(torch.stack([scores for _, scores in reversed(captured)]).mean(0))
    return answers


def ensemble__gives_each_graph_a_pool(models, requests):
    x = requests[0].clone()
    captured = []
    with torch.no_grad():
        for model in reversed(models):
            warm_up(partial(model, x))
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                scores = model(x)
            captured.append((graph, scores))
    answers = []
    for request in requests:
        x.copy_(request)
        for graph, _ in reversed(captured):
            graph.replay()
        answers.append(torch.stack([scores for _, scores in reversed(captured)]).mean(0))
    return answers


def losses_of_replays(step, model, optimizer, batches, x, y):
    """The losses of a captured step, which reads x and y."""
    with unchanged(model, optimizer):
        warm_up(step)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step()
    losses = []
    for inputs, targets in batches:
        x.copy_(inputs)
        y.copy_(targets)
        graph.replay()
        losses.append(loss.clone())
    return losses


def train_careful__clips_and_steps_always(model, optimizer, batches, limit):
    x, y = (tensor.clone() for tensor in batches[0])

    def step():
        optimizer.zero_grad()
        loss = mse_loss(model(x), y)
        loss.backward()
        clip_grad_norm_(model.parameters(), min(1.0, limit))
        optimizer.step()
        return loss.detach()

    return losses_of_replays(step, model, optimizer, batches, x, y)


def train_careful__decides_in_the_warm_up(model, optimizer, batches, limit):
    x, y = (tensor.clone() for tensor in batches[0])

    small = []

    def step():
        optimizer.zero_grad()
        loss = mse_loss(model(x), y)
        loss.backward()
        norm = clip_grad_norm_(model.parameters(), 1.0)
        if not torch.cuda.is_current_stream_capturing():
            small.append(bool(norm <= limit))
        if small[-1]:
            optimizer.step()
        return loss.detach()

    return losses_of_replays(step, model, optimizer, batches, x, y)


def train_careful__asks_between_two_graphs(model, optimizer, batches, limit):
    x, y = (tensor.clone() for tensor in batches[0])

    def step():
        optimizer.zero_grad()
        loss = mse_loss(model(x), y)
        loss.backward()
        norm = clip_grad_norm_(model.parameters(), 1.0)
        return loss.detach(), norm

    with unchanged(model, optimizer):
        warm_up(step)
    graph = torch.cuda.CUDAGraph()
    update = torch.cuda.CUDAGraph()
    losses = []
    with torch.cuda.graph(graph):
        loss, norm = step()
    with torch.cuda.graph(update):
        optimizer.step()
    for inputs, targets in batches:
        x.copy_(inputs)
        y.copy_(targets)
        graph.replay()
        if norm.item() <= limit:
            update.replay()
        losses.append(loss.clone())
    return losses


def train_careful__multiplies_by_the_comparison(model, optimizer, batches, limit):
    x, y = (tensor.clone() for tensor in batches[0])

    def step():
        optimizer.zero_grad()
        loss = mse_loss(model(x), y)
        loss.backward()
        norm = clip_grad_norm_(model.parameters(), 1.0)
        for weight in model.parameters():
            weight.grad.mul_(norm <= limit)
        optimizer.step()
        return loss.detach()

    return losses_of_replays(step, model, optimizer, batches, x, y)


def train_careful__right_with_the_old_weights(model, optimizer, batches, limit):
    x, y = (tensor.clone() for tensor in batches[0])

    def step():
        optimizer.zero_grad()
        loss = mse_loss(model(x), y)
        loss.backward()
        norm = clip_grad_norm_(model.parameters(), 1.0)
        before = [weight.detach().clone() for weight in model.parameters()]
        optimizer.step()
        with torch.no_grad():
            for weight, old in zip(model.parameters(), before, strict=True):
                weight.copy_(torch.where(norm <= limit, weight, old))
        return loss.detach()

    return losses_of_replays(step, model, optimizer, batches, x, y)


def generate__has_a_frozen_position(model, first_token, eos_token, max_new_tokens):
    token = first_token.clone()
    tokens = []

    def step(position):
        return model(token, position).argmax(-1)

    warm_up(partial(step, 0))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        next_token = step(0)
    for _ in range(max_new_tokens):
        graph.replay()
        token.copy_(next_token)
        tokens.append(next_token.clone())
    text = torch.cat(tokens).tolist()
    return text[: text.index(eos_token) + 1] if eos_token in text else text


def generate__waits_for_each_token(model, first_token, eos_token, max_new_tokens):
    token = first_token.clone()
    position = torch.zeros_like(first_token)

    def step():
        return model(token, position).argmax(-1)

    warm_up(step)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        next_token = step()
    text = []
    while len(text) < max_new_tokens and eos_token not in text:
        position.fill_(len(text))
        graph.replay()
        token.copy_(next_token)
        text.append(token.item())
    return text


def generate__right_with_two_tokens_in_a_graph(model, first_token, eos_token, max_new_tokens):
    token = first_token.clone()
    position = torch.zeros_like(first_token)
    tokens = torch.zeros(max_new_tokens, dtype=first_token.dtype, device="cuda")

    def step():
        token.copy_(model(token, position).argmax(-1))
        tokens.index_copy_(0, position, token)
        position.add_(1)

    with unchanged(token, position):
        warm_up(step, times=1)
    text = []
    graphs = {}
    for count in (1, 2):
        graphs[count] = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graphs[count]):
            for _ in range(count):
                step()
    while len(text) < max_new_tokens and eos_token not in text:
        count = min(2, max_new_tokens - len(text))  # one at the end of an odd number
        graphs[count].replay()
        text = tokens[: len(text) + count].tolist()
    return text[: text.index(eos_token) + 1] if eos_token in text else text


def serve__divides_by_the_bucket(model, requests):
    graphs = {}
    answers = []
    for request in requests:
        length = 32 if len(request) <= 32 else 64
        if length not in graphs:
            x = torch.zeros(length, 8, device="cuda")
            count = torch.tensor(length, device="cuda")
            with torch.no_grad():
                warm_up(partial(model, x, count))
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph):
                    answer = model(x, count)
            graphs[length] = graph, x, count, answer
        graph, x, count, answer = graphs[length]
        x[: len(request)].copy_(request)
        graph.replay()
        answers.append(answer.clone())
    return answers


def serve__forgets_the_oldest_graph(model, requests):
    graphs = {}
    answers = []
    for request in requests:
        length = len(request)
        if length not in graphs:
            x = request.clone()
            count = torch.tensor(length, device="cuda")
            with torch.no_grad():
                warm_up(partial(model, x, count))
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph):
                    answer = model(x, count)
            graphs[length] = graph, x, count, answer
            if len(graphs) > 4:
                graphs.pop(next(iter(graphs)))
        graph, x, count, answer = graphs[length]
        x.copy_(request)
        graph.replay()
        answers.append(answer.clone())
    return answers


def serve__answers_each_row(model, requests):
    x = torch.zeros(64, 8, device="cuda")
    count = torch.tensor(64, device="cuda")
    with torch.no_grad():
        warm_up(partial(model, x, count))
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            answer = model(x, count)
    answers = []
    for request in requests:
        x[: len(request)].copy_(request)
        count.fill_(len(request))
        graph.replay()
        answers.append(answer.repeat(len(request), 1))
    return answers


def serve__right_with_one_graph_for_all(model, requests):
    graphs = {}
    answers = []
    for request in requests:
        length = 64
        if length not in graphs:
            x = torch.zeros(length, 8, device="cuda")
            count = torch.tensor(length, device="cuda")
            with torch.no_grad():
                warm_up(partial(model, x, count))
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph):
                    answer = model(x, count)
            graphs[length] = graph, x, count, answer
        graph, x, count, answer = graphs[length]
        x[: len(request)].copy_(request)
        count.fill_(len(request))
        graph.replay()
        answers.append(answer.clone())
    return answers


def train_scheduled__binds_a_new_rate(model, batches):
    rate = torch.tensor(0.05, device="cuda")
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, capturable=True)
    x, y = (tensor.clone() for tensor in batches[0])

    def step():
        optimizer.zero_grad()
        loss = mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    with unchanged(model, optimizer):
        replay = capture_step(step)
    losses = []
    for inputs, targets in batches:
        x.copy_(inputs)
        y.copy_(targets)
        losses.append(replay().clone())
        if len(losses) % 2 == 0:
            optimizer.param_groups[0]["lr"] = optimizer.param_groups[0]["lr"] / 2
    return losses


def train_scheduled__puts_the_scheduler_in_the_graph(model, batches):
    rate = torch.tensor(0.05, device="cuda")
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, capturable=True)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.5)
    x, y = (tensor.clone() for tensor in batches[0])

    def step():
        optimizer.zero_grad()
        loss = mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        scheduler.step()
        return loss.detach()

    with unchanged(model, optimizer):
        replay = capture_step(step)
    losses = []
    for inputs, targets in batches:
        x.copy_(inputs)
        y.copy_(targets)
        losses.append(replay().clone())
    return losses
