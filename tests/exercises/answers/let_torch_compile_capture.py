"""Answers to the exercises of *Let torch.compile capture*: wrong ones, and other right ones (`__right_`)."""


changed(
    two_graphs,
    one_if_is_left={
        "return x * (limit / x.norm().clamp(min=limit))":
            "if x.norm() > limit:\n"
            "    x = x * (limit / x.norm())\n"
            "return x",
    },
    each_number_clamped={"x * (limit / x.norm().clamp(min=limit))": "x.clamp(max=limit)"},
    both_sides_computed={
        "x * (limit / x.norm().clamp(min=limit))":
            "torch.where(x.norm() > limit, x * (limit / x.norm()), x)",
    },
    factor_by_where={
        "(limit / x.norm().clamp(min=limit))":
            "torch.where(x.norm() > limit, limit / x.norm(), 1.0)",
    },
    right_by_where={"x.norm().clamp(min=limit)": "torch.where(x.norm() > limit, x.norm(), limit)"},
    right_nan_to_num={"torch.where(x.isnan(), 0.0, x)": "x.nan_to_num(nan=0.0)"},
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
    another_mode={"(mode='reduce-overhead')": ""},
    counted_in_python={
        "scale = scale.to('cuda')": "…\nnumber = 0",
        "calls.add_(1)":
            "nonlocal number\n"
            "number += 1\n"
            "calls.fill_(number)",
    },
    copied_in_each_call={
        "scale = scale.to('cuda')": "",
        "return compiled(x, scale, calls)": "return compiled(x, scale.to('cuda'), calls)",
    },
    counter_not_used={
        "def compiled(x, scale, calls):": "def compiled(x):",
        "return (x @ x).relu() * scale * calls": "return (x @ x).relu() * scale",
        "return compiled(x, scale, calls)": "return compiled(x)",
    },
    compiled_in_each_call={
        "@torch.compile(mode='reduce-overhead')\n"
        "def compiled(x, scale, calls):": "def product(x, calls):",
        "return compiled(x, scale": "return torch.compile(product, mode='reduce-overhead')(x",
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


changed(
    graph_compiled,
    reduce_overhead={"torch.compile(model)": "torch.compile(model, mode='reduce-overhead')"},
    no_warm_up={"inputs.clone(), targets.clone()": "inputs.clone(), targets.clone(), warmup=0"},
    eager_kernels={"compiled_model(inputs)": "model(inputs)"},
    momentum_filled={"unchanged(model, optimizer)": "unchanged(model)"},
    on_the_callers_batch={"inputs.clone(), targets.clone()": "inputs, targets"},
    never_copied={"replay(inputs, targets)": "replay()"},
    right_model_compile={
        "compiled_model = torch.compile(model)": "model.compile()",
        "compiled_model(inputs)": "model(inputs)",
    },
    right_the_loss_compiled_too={
        "compiled_model = torch.compile(model)":
            "@torch.compile(mode='max-autotune-no-cudagraphs')\n"
            "def loss_of(inputs, targets):\n"
            "    return mse_loss(model(inputs), targets)",
        "mse_loss(compiled_model(inputs), targets)": "loss_of(inputs, targets)",
    },
)
