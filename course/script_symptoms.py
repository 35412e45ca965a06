"""What a script does wrong, told by its symptoms."""

import torch


def symptom(eager: dict, short: dict, long: dict, beside: int) -> str:
    """The first thing that is wrong with a script's two runs, in words; "" if there is none.

    eager, short, long: what course.repaired.run gives of an eager run and of the script's two, the long
    one with eager's arguments. beside: operators that a step may launch outside of graphs.
    """
    if problem := _weights(eager, long) or _results(eager, long) or _after(eager, long):
        return problem
    steps = max(1, len(long["results"]) - len(short["results"]))
    more = long["counts"] - short["counts"]
    if not long["counts"]["graphs"]:
        return "right, but no graph is replayed: it runs eagerly."
    if more["captures"] > steps / 3:
        return f"right, but slow: {steps} steps more capture {more['captures']} graphs more."
    if more["reads"] > steps / 2:
        return f"right, but slow: {steps} steps more read {more['reads']} values more, and the CPU waits for each."
    if more["operators"] > beside * steps:
        return f"right, but slow: each step launches {more['operators'] // steps} operators beside its graphs."
    return ""


def _results(eager, yours):
    """The first wrong result, and what tells of its cause."""
    expected, found = eager["results"], yours["results"]
    right = [_alike(*pair) for pair in zip(found, expected, strict=False)]
    if all(right):
        return "" if len(found) == len(expected) else f"it gives {len(found)} results, eager {len(expected)}."
    if yours["one memory"]:
        return "all its results lie in the same memory, so each is the last one."
    wrong = right.index(False) + 1
    if found[wrong - 1].is_floating_point() and not found[wrong - 1].isfinite().all():
        return f"result {wrong} is not finite: it was read before anything computed it, or after it was overwritten."
    if len(found) > 2 and all(_alike(one, found[0]) for one in found):
        return "every result is the first one again: nothing new reaches the graph."
    first = f"result {wrong} of {len(expected)} is the first that is not eager's: "
    if _moved(eager):
        return first + (f"its weights part in step {wrong - 1}." if wrong > 1 else "it does not start as eager does.")
    late = "something was not given to the graph, or was overwritten before it was read."
    return first + (late if wrong == 1 else "something that it works on is still that of a step before.")


def _moved(run):
    """The names of the weights and buffers that a run has changed."""
    return [name for name, weight in run["after"].items() if not torch.equal(weight, run["before"][name])]


def _weights(eager, yours):
    """Weights that eager training moves, and this one does not."""
    still = [name for name in _moved(eager) if name not in _moved(yours)]
    why = ": they get no gradient" if set(still) & {*eager["gradients"]} - {*yours["gradients"]} else ""
    return f"these do not learn: {', '.join(still)}{why}." if still else ""


def _after(eager, yours):
    """What a script leaves behind: weights and buffers, and the state of the random numbers."""
    different = [name for name, weight in eager["after"].items() if not _alike(yours["after"][name], weight)]
    if different:
        return f"its results are eager's, but afterwards {', '.join(different)} differ."
    both = eager["gradients"].keys() & yours["gradients"].keys()
    wrong = sorted(name for name in both if not _alike(yours["gradients"][name], eager["gradients"][name]))
    if wrong:
        return f"its results are eager's, but the gradients of {', '.join(wrong)} differ."
    if not torch.equal(eager["random"], yours["random"]):
        return "its results are eager's, but it has drawn other random numbers than eager."
    return ""


def _alike(one, other):
    return one.shape == other.shape and torch.allclose(one.double(), other.double(), rtol=1e-3, atol=1e-5)
