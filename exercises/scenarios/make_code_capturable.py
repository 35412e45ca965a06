"""Scenarios: choices and logs on the GPU."""

from collections.abc import Callable

import torch
from torch.utils._pytree import keystr, tree_flatten_with_path

from exercises.answers.comparison import short_repr
from exercises.answers.graph_use import (
    call_answer,
    raise_symptom,
    require_distinct_results,
    require_no_freed_reads,
    watch_graphs,
)
from exercises.answers.tensors import are_close, copy_tensors
from exercises.answers.wrong import Wrong
from exercises.scenarios.common import draw_int, require_replay
from exercises.scenarios.rules import require_one_graph
from exercises.scenarios.warm_ups import TRAINED
from helpers.capture import capture_step

NOT_FINITE = (
    "The gradient is not finite where p is 0.",
    "The derivative of log is infinite there: choose the input of log, so that it is never 0.",
)


def judge_entropy(answer: Callable) -> None:
    """Probabilities of which none or some are 0; the entropy and its gradient are captured."""
    size = draw_int(4, 6)
    cases = []
    for zeros in (0, 2, 0, 1):
        weights = 0.5 + torch.rand(size, device="cuda")
        weights[:zeros] = 0
        cases.append(weights / weights.sum())
    p = cases[0].clone().requires_grad_()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = answer(p)
        if not torch.is_tensor(result) or result.shape != ():
            raise Wrong(f"A tensor of shape () is asked, not {short_repr(result)}.")
        if not result.requires_grad:
            raise Wrong("The result has no gradient.", "Compute it from p with tensors alone.")
        (gradient,) = torch.autograd.grad(result, p)

    def replay(case):
        with torch.no_grad():
            p.copy_(case)
        graph.replay()
        return copy_tensors([result, gradient])

    used = call_answer(replay, cases, what="It")
    for case, (_, found) in zip(cases, used.given, strict=True):
        if not found.isfinite().all():
            raise Wrong(NOT_FINITE)
        if (found[case == 0] != 0).any():
            raise Wrong(
                "Where p is 0, the gradient is not 0.",
                "Such an element adds nothing to the sum, whatever p is near 0.",
            )
    expected = []
    for case in cases:
        logarithm = torch.where(case > 0, case, 1).log()
        expected.append([-(case * logarithm).sum(), torch.where(case > 0, -logarithm - 1, 0)])
    used.require_results(expected)


def judge_logger(answer: Callable) -> None:
    """Losses written into a log of a few rows, more of them than it has rows."""
    rows = draw_int(3, 6)
    losses = 1 + torch.rand(rows + 2, device="cuda")
    log = torch.zeros(rows, device="cuda")
    write = answer(log)
    static_loss = losses[0].clone()
    before = _addresses_in_closure(write)
    replay = capture_step(write, static_loss, warmup=0)
    _require_same_addresses(write, before)

    def logged(first, stride):
        filled, results = torch.zeros(rows, device="cuda"), []
        for number, loss in enumerate(losses):
            filled[(first + stride * number) % rows] = loss
            results.append(filled.clone())
        return results

    used = call_answer(replay, list(losses), what="It")
    if any(output.data_ptr() != log.data_ptr() for output in used.kept):
        raise Wrong("It should write into the log that it is given, and return it.")
    used.kept = used.given  # all results are the log itself
    symptoms = {
        (
            "Every replay writes the same row.",
            "The row number must be a tensor on the GPU, and be advanced in place.",
        ): logged(0, 0),
        ("It starts at the second row.", "Write first, then advance the row."): logged(1, 1),
    }
    used.require_results(logged(0, 1), symptoms)


def judge_anneal_and_train(answer: Callable) -> None:
    """A weight trained on batches of the CPU, with a temperature that falls from step to step."""
    count, size = draw_int(9, 12), draw_int(3, 6)  # the temperature comes to its lowest value
    weight = torch.randn(size, device="cuda").requires_grad_()
    initial = copy_tensors(weight)
    batches = [torch.randn(size) for _ in range(count)]
    given = copy_tensors(batches)
    with watch_graphs() as seen:
        losses = answer(weight, batches)
    require_replay(seen)
    require_no_freed_reads()
    require_one_graph(seen)
    if len(seen.replayed) not in (count, count - 3):  # a warm-up of three steps may count
        raise Wrong(f"{len(seen.replayed)} replays for {count} batches: one for each is asked.")
    if not isinstance(losses, list) or len(losses) != count:
        raise Wrong(f"A list of {count} numbers is asked, not {short_repr(losses)}.")
    losses = torch.tensor([float(loss) for loss in losses])
    require_distinct_results(list(losses))
    falling = [max(1.0, 2 * 0.9**number) for number in range(count + 4)]
    _require_trained_as_script(losses, copy_tensors(weight), initial, given, falling)


def _require_trained_as_script(losses, weight, initial, batches, falling):
    """Raises Wrong unless losses and weight are those of the script, run eagerly."""
    count = len(batches)

    def trained_like(trained_on, temperatures):
        expected, trained = _train_as_script(initial, trained_on, temperatures)
        return are_close([losses, weight], [expected, trained])

    if trained_like(batches, falling):
        return
    if any(trained_like(batches, [temperature] * count) for temperature in falling):
        raise Wrong(
            "Every replay divides by the same temperature.",
            "Keep it in one tensor on the GPU, and write into it in place.",
        )
    if any(trained_like(batches, falling[start:]) for start in range(1, 5)):
        raise Wrong(
            "The temperature is ahead of the script's.",
            "It falls after it is used, and what the warm-up changed has to be undone.",
        )
    if any(trained_like([batch] * count, falling) for batch in batches):
        raise Wrong(
            "Every replay trains on the same batch.", "Copy the new one into the static input."
        )
    for steps in range(1, 4):
        _, warm = _train_as_script(initial, batches[:1] * steps, falling)
        for start in (0, steps):
            raise_symptom(losses, [(TRAINED, _train_as_script(warm, batches, falling[start:])[0])])
    raise Wrong("The losses or the weight are not the script's.")


def _train_as_script(weight, batches, temperatures):
    """The losses and the weight of the script."""
    weight = weight.clone().requires_grad_()
    losses = []
    for batch, temperature in zip(batches, temperatures, strict=False):
        loss = (batch.to(weight.device) * weight / temperature - 1).square().mean()
        (gradient,) = torch.autograd.grad(loss, weight)
        weight = (weight - 0.1 * gradient).detach().requires_grad_()
        losses.append(loss.item())
    return torch.tensor(losses), weight.detach()


def _addresses_in_closure(function: Callable) -> dict[str, int]:
    """The addresses of tensors that a function keeps between its calls, by what it calls them."""
    code = getattr(function, "__code__", None)
    cells = getattr(function, "__closure__", None) or ()
    names = code.co_freevars if code else ()
    kept = {}
    for name, cell in zip(names, cells, strict=True):
        for path, leaf in tree_flatten_with_path(cell.cell_contents)[0]:
            if torch.is_tensor(leaf):
                kept[name + keystr(path)] = leaf.data_ptr()
    return kept


def _require_same_addresses(function: Callable, before: dict[str, int]) -> None:
    """Raises Wrong if a tensor that the function keeps is at a different address than before."""
    now = _addresses_in_closure(function)
    for name, address in before.items():
        if now.get(name, address) != address:
            raise Wrong(
                f"`{name}` is a new tensor after each call, but the graph "
                "reads the address of the old one.",
                f"Write into it in place, as in `{name}.add_(1)`.",
            )
