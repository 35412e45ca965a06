"""Answers to the exercises of *Graph Megatron*: wrong ones, and other right ones (`__right_`)."""


def in_graphs__eager(iterates):
    """There is no graph."""
    return list(iterates)


def in_graphs__right_captured_at_the_first_call(iterates):
    def wrapped(iterate):
        replays = {}

        def call(batch):
            rows = len(batch)
            if rows not in replays:
                replays[rows] = capture_step(iterate, batch.clone())
            return replays[rows](batch).clone()

        return call

    return [wrapped(iterate) for iterate in iterates]


changed(
    in_graphs__right_captured_at_the_first_call,
    captured_at_every_call={"if rows not in replays:": "if True:"},
)


changed(
    in_graphs,
    one_number_of_rows={
        "graphs.setdefault(len(batch), {'calls': 0})": "graphs.setdefault(0, {'calls': 0})",
    },
    not_copied={"kept['static'].copy_(batch)": ""},
    starts_again={
        "def call(batch):":
            "…\n"
            "    if len(batch) not in graphs:\n"
            "        graphs.clear()",
    },
    captured_at_the_first_and_the_second_call={
        "return iterate(kept['static'])": "",
        "if kept['calls'] == 2:": "if kept['calls'] <= 2:",
    },
)


changed(
    train_and_validate,
    eval_forgotten={"net.eval()": ""},
    gradients_on={"torch.no_grad()(forward)": "forward"},
    stays_in_eval={"net.train()": ""},
    one_graph={"validate(x).clone()": "train(x).clone()"},
    not_cloned={"(lambda x: train(x).clone(), lambda x: validate(x).clone())": "(train, validate)"},
    trained_in_eval={"train = capture_step": "net.eval()\n…"},
    zeroed_in_the_training={"loss = forward(x)": "net.zero_grad(set_to_none=False)\n…"},
    validated_on_a_clone={
        "net.eval()": "import copy\nother = copy.deepcopy(net).eval()",
        "torch.no_grad()(forward)": "torch.no_grad()(lambda x: other(x).square().mean())",
    },
    right_inference_mode={
        "validate = capture_step(torch.no_grad()(forward), inputs.clone())":
            "static = inputs.clone()\n"
            "with torch.inference_mode():\n"
            "    validate = capture_step(forward, static)",
    },
)
