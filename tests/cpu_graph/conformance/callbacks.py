"""What torch calls back, in eager and in a capture: where does it find its tensors?"""

import torch
from torch.utils.checkpoint import checkpoint

from tests.cpu_graph.conformance.common import READ, captured, ones
from tests.cpu_graph.conformance.outcomes import program
from tests.cpu_graph.conformance.sameness import warmed_up

HERE = [True, "cuda:0", False]


def where(tensor):
    return [tensor.is_cuda, str(tensor.device), tensor.is_cpu]


def made(tensor):
    """Tensors that the callback makes: where it is told to, like its own, and on the CPU."""
    new = torch.ones(2, device="cuda"), torch.zeros_like(tensor), tensor.new_ones(2), torch.ones(2)
    return [one.is_cuda for one in new]


class Asked(torch.autograd.Function):
    """Doubles its input, and asks in its forward or backward pass."""

    @staticmethod
    def forward(ctx, x, ask, when):
        if when == "forward":
            ask(x)
        ctx.save_for_backward(x)
        ctx.asks = ask, when
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        ask, when = ctx.asks
        if when == "backward":
            ask(gradient)
        if when == "saved":
            ask(ctx.saved_tensors[0])
        return gradient * 2, None, None


def weight():
    return ones(2, requires_grad=True)


def of_function(when):
    return lambda ask: Asked.apply(weight(), ask, when).sum().backward()


def of_leaf(ask):
    x = weight()
    x.register_hook(ask)
    (x * 2).sum().backward()


def of_saved(pack):
    def run(ask):
        def told(tensor):
            ask(tensor)
            return tensor

        pair = (told, lambda kept: kept) if pack else (lambda tensor: tensor.detach(), told)
        with torch.autograd.graph.saved_tensors_hooks(*pair):
            (weight() ** 2).sum().backward()

    return run


def of_checkpoint(reentrant):
    def run(ask):
        turns = []

        def block(x):
            turns.append(1)
            if len(turns) == 2:
                ask(x)
            return x.sin() * 2

        checkpoint(block, weight(), use_reentrant=reentrant).sum().backward()

    return run


def of_gradient_function(ask):
    def function(x):
        ask(x)
        return (x * 2).sum()

    torch.func.grad(function)(ones(2))


CALLBACKS = {
    "a_forward_function": of_function("forward"),
    "a_backward_function": of_function("backward"),
    "a_hook_of_a_leaf": of_leaf,
    "a_hook_that_packs": of_saved(True),
    "a_hook_that_unpacks": of_saved(False),
    "a_recomputed_block": of_checkpoint(False),
    "a_function_under_grad": of_gradient_function,
}


def asks(name, callback, question, gives, capture):
    def run():
        told = []

        def ask(tensor):
            told.append(question(tensor))

        if capture:
            warmed_up(callback, lambda tensor: None)  # leaves are first used on a side stream
            captured(lambda: callback(ask))
        else:
            callback(ask)
        return told[-1]

    run.__name__ = f"{name}_in_a_capture" if capture else name
    program(gives)(run)


for name, callback in CALLBACKS.items():
    for capture in (False, True):
        asks(f"{name}_asks_where_it_is", callback, where, HERE, capture)
        asks(f"{name}_makes_tensors", callback, made, [True, True, True, False], capture)

QUESTIONS = {  # question of a backward function -> what it tells in eager, and in a capture
    "for_its_type": (lambda g: g.type(), "torch.cuda.FloatTensor", "torch.cuda.FloatTensor"),
    "for_a_text": (lambda g: str(g), "tensor([1., 1.], device='cuda:0')", READ),
    "whether_it_is_captured": (lambda g: torch.cuda.is_current_stream_capturing(), False, True),
}
for name, (question, eager, in_capture) in QUESTIONS.items():
    of = CALLBACKS["a_backward_function"]
    asks(f"a_backward_function_asks_{name}", of, question, eager, False)
    asks(f"a_backward_function_asks_{name}", of, question, in_capture, True)


@program([[6, 6], [12, 12]])
def a_hook_that_changes_a_gradient_is_in_the_graph():
    x, factor = weight(), ones(2)
    x.register_hook(lambda gradient: gradient * factor)
    factor.fill_(3)
    replay = captured(lambda: torch.autograd.grad((x * 2).sum(), x)[0])
    first = replay().tolist()
    factor.fill_(6)
    return [first, replay().tolist()]
