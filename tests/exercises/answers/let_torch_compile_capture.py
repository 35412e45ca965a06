"""Answers to the exercises of *Let torch.compile capture*: wrong ones, and other right ones (`__right_`)."""


def two_graphs__one_if_is_left(x, limit):
    def clip(x):
        x = torch.where(x.isnan(), 0.0, x)
        if x.norm() > limit:
            x = x * (limit / x.norm())
        return x

    return count_graphs(clip, x)


def two_graphs__each_number_clamped(x, limit):
    def clip(x):
        return torch.where(x.isnan(), 0.0, x).clamp(max=limit)

    return count_graphs(clip, x)


def two_graphs__both_sides_computed(x, limit):
    def clip(x):
        x = torch.where(x.isnan(), 0.0, x)
        norm = x.norm()
        return torch.where(norm > limit, x * (limit / norm), x)

    return count_graphs(clip, x)


def two_graphs__factor_by_where(x, limit):
    def clip(x):
        x = torch.where(x.isnan(), 0.0, x)
        norm = x.norm()
        return x * torch.where(norm > limit, limit / norm, 1.0)

    return count_graphs(clip, x)


def two_graphs__right_by_where(x, limit):
    def clip(x):
        x = torch.where(x.isnan(), 0.0, x)
        norm = x.norm()
        return x * (limit / torch.where(norm > limit, norm, limit))

    return count_graphs(clip, x)


def two_graphs__right_nan_to_num(x, limit):
    def clip(x):
        x = x.nan_to_num(nan=0.0)
        return x * (limit / x.norm().clamp_min(limit))

    return count_graphs(clip, x)


changed(
    two_graphs,
    always_scaled={
        "return x * (limit / x.norm().clamp(min=limit))": "return x * (limit / x.norm())",
    },
    nan_left={"x = torch.where(x.isnan(), 0.0, x)": ""},
    quotient_clamped={"(limit / x.norm().clamp(min=limit))": "(limit / x.norm()).clamp(max=1)"},
)


def make_scaled__another_counter(scale, calls):
    scale = scale.to("cuda")

    @torch.compile(mode="reduce-overhead")
    def compiled(x, calls):
        calls = calls + 1
        return (x @ x).relu() * scale * calls, calls

    def scaled(x):
        nonlocal calls
        result, calls = compiled(x, calls)
        return result

    return scaled


def make_scaled__another_mode(scale, calls):
    scale = scale.to("cuda")

    @torch.compile
    def compiled(x, scale, calls):
        calls += 1
        return (x @ x).relu() * scale * calls

    return lambda x: compiled(x, scale, calls)


def make_scaled__compiled_in_each_call(scale, calls):
    scale = scale.to("cuda")

    def product(x, calls):
        return (x @ x).relu() * scale * calls

    def scaled(x):
        calls.add_(1)
        return torch.compile(product, mode="reduce-overhead")(x, calls)

    return scaled


def make_scaled__right_marked_static(scale, calls):
    scale = scale.to("cuda")
    torch._dynamo.mark_static_address(calls)

    @torch.compile(mode="reduce-overhead")
    def compiled(x):
        calls.add_(1)
        return (x @ x).relu() * scale * calls

    return compiled


changed(
    make_scaled,
    D8_copied_in_each_call={
        "scale = scale.to('cuda')": "",
        "return compiled(x, scale, calls)": "return compiled(x, scale.to('cuda'), calls)",
    },
    counter_not_used={
        "def compiled(x, scale, calls):": "def compiled(x):",
        "return (x @ x).relu() * scale * calls": "return (x @ x).relu() * scale",
        "return compiled(x, scale, calls)": "return compiled(x)",
    },
)


changed(
    make_scaled__another_counter,
    right_copied_back={
        "nonlocal calls": "result, new_calls = compiled(x, calls)",
        "result, calls = compiled(x, calls)": "calls.copy_(new_calls)",
    },
)


changed(
    make_scaled__right_marked_static,
    still_modifies={"torch._dynamo.mark_static_address(calls)": ""},
)


def predict__another_mode(model, batches):
    compiled_model = torch.compile(model)
    with torch.no_grad():
        return [compiled_model(batch) for batch in batches]


def predict__with_gradients(model, batches):
    compiled_model = torch.compile(model, mode="reduce-overhead")
    return [compiled_model(batch).clone() for batch in batches]


def predict__the_first_is_missing(model, batches):
    compiled_model = torch.compile(model, mode="reduce-overhead")
    with torch.no_grad():
        compiled_model(batches[0])
        return [compiled_model(batch).clone() for batch in batches[1:]]


def predict__only_the_first_cloned(model, batches):
    compiled_model = torch.compile(model, mode="reduce-overhead")
    with torch.no_grad():
        first = compiled_model(batches[0]).clone()
        return [first] + [compiled_model(batch) for batch in batches[1:]]


def predict__one_mark(model, batches):
    compiled_model = torch.compile(model, mode="reduce-overhead")
    torch.compiler.cudagraph_mark_step_begin()
    with torch.no_grad():
        return [compiled_model(batch) for batch in batches]


def predict__right_a_mark_before_each(model, batches):
    compiled_model = torch.compile(model, mode="reduce-overhead")
    outputs = []
    with torch.no_grad():
        for batch in batches:
            torch.compiler.cudagraph_mark_step_begin()
            outputs.append(compiled_model(batch).clone())
    return outputs


def predict__right_one_mark_and_clones(model, batches):
    compiled_model = torch.compile(model, mode="reduce-overhead")
    torch.compiler.cudagraph_mark_step_begin()
    with torch.no_grad():
        return [compiled_model(batch).clone() for batch in batches]


def predict__right_on_the_cpu(model, batches):
    compiled_model = torch.compile(model, mode="reduce-overhead")
    with torch.inference_mode():
        return [compiled_model(batch).cpu() for batch in batches]


def step_of(net, optimizer):
    def step(inputs, targets):
        optimizer.zero_grad()
        loss = mse_loss(net(inputs), targets)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def captured(model, net, optimizer, inputs, targets, warmup=3):
    with unchanged(model, optimizer):
        batch = (inputs.clone(), targets.clone())
        return capture_step(step_of(net, optimizer), *batch, warmup=warmup)


def graph_compiled__reduce_overhead(model, optimizer, inputs, targets):
    net = torch.compile(model, mode="reduce-overhead")
    replay = captured(model, net, optimizer, inputs, targets)
    return lambda *batch: replay(*batch).clone()


def graph_compiled__no_warm_up(model, optimizer, inputs, targets):
    net = torch.compile(model)
    replay = captured(model, net, optimizer, inputs, targets, warmup=0)
    return lambda *batch: replay(*batch).clone()


def graph_compiled__eager_kernels(model, optimizer, inputs, targets):
    torch.compile(model)
    replay = captured(model, model, optimizer, inputs, targets)
    return lambda *batch: replay(*batch).clone()


def graph_compiled__not_captured(model, optimizer, inputs, targets):
    return step_of(torch.compile(model), optimizer)


def graph_compiled__weights_moved(model, optimizer, inputs, targets):
    replay = capture_step(step_of(torch.compile(model), optimizer), inputs, targets)
    return lambda *batch: replay(*batch).clone()


def graph_compiled__on_the_callers_batch(model, optimizer, inputs, targets):
    with unchanged(model, optimizer):
        replay = capture_step(step_of(torch.compile(model), optimizer), inputs, targets)
    return lambda *batch: replay(*batch).clone()


def graph_compiled__not_cloned(model, optimizer, inputs, targets):
    return captured(model, torch.compile(model), optimizer, inputs, targets)


def graph_compiled__never_copied(model, optimizer, inputs, targets):
    replay = captured(model, torch.compile(model), optimizer, inputs, targets)
    return lambda *batch: replay().clone()


def graph_compiled__right_model_compile(model, optimizer, inputs, targets):
    model.compile()
    replay = captured(model, model, optimizer, inputs, targets)
    return lambda *batch: replay(*batch).clone()


def graph_compiled__right_the_loss_compiled_too(model, optimizer, inputs, targets):
    @torch.compile(mode="max-autotune-no-cudagraphs")
    def loss_of(inputs, targets):
        return mse_loss(model(inputs), targets)

    def step(inputs, targets):
        optimizer.zero_grad()
        loss = loss_of(inputs, targets)
        loss.backward()
        optimizer.step()
        return loss.detach()

    with unchanged(model, optimizer):
        replay = capture_step(step, inputs.clone(), targets.clone())
    return lambda *batch: replay(*batch).clone()
