"""preflight: run a step eagerly, and name what would keep a CUDA graph from capturing or replaying it.

    findings = preflight(step, inputs, targets, other_inputs=(inputs_2, targets_2))

operators, bookkeeping and listening see what runs; rules judges it; undo puts everything back.
"""

import threading
from contextlib import ExitStack
from functools import partial

import pandas as pd
import torch
from torch.utils._pytree import tree_leaves

from capturable import rules
from capturable.bookkeeping import Bookkeeping
from capturable.listening import listening
from capturable.operators import OpLog, address, differences, here
from capturable.undo import Undo


def preflight(step, *inputs, other_inputs=None, generators=(), device=None):
    """Find what would break, or freeze, when step(*inputs) is captured; return a row per finding.

    inputs: what the graph will read; other_inputs: a tuple like it, another batch, to see what
    changes from step to step. generators: torch.Generators that you will register with the graph.
    device: the type that counts as the GPU, by default "cuda" where there is one, else "cpu".
    The step runs three times, eagerly. Then weights, .grad, optimizer, random state and Python
    values are what they were, to the bit (iterators and files excepted); the copies take memory.
    Columns: rule (one of capturable.rules.FIXES), line of your code, what was found, and the
    fix; no rows where nothing was found. Only the path that ran was seen. What the step raises comes through;
    ValueError if other_inputs are not as many as the inputs.
    """
    check = _Preflight(step, inputs, generators, device)
    others = inputs if other_inputs is None else other_inputs
    with Undo(step, inputs) as undo:
        check.autocast()
        check.run(undo, judged=False)  # optimizers make their state in their first step
        first = check.run(undo)
        check.put(others, undo)
        for rule, op, what in differences(first, check.run(undo)):
            special_rule, fix = rules.special(op.library) if rule == "frozen number" else (None, None)
            check.found(special_rule or rule, op.line, what, fix)
        used = {where for op in first for where in op.outside}
        leaves = {id(leaf) for leaf, _, data in undo.leaves if address(data) in used}
    for name in rules.kept_graphs((result() for result in undo.results), leaves):
        check.found("kept graph", name, "holds the autograd graph of an earlier pass")
    return check.table()


class _Preflight:
    """One step, and the findings about it."""

    def __init__(self, step, inputs, generators, device):
        self.step, self.inputs, self.rows, self.thread = step, inputs, {}, threading.get_ident()
        self.gpu = device or ("cuda" if torch.cuda.is_available() else "cpu")
        defaults = torch.cuda.default_generators if self.gpu == "cuda" else ()
        self.known = {generator._cdata for generator in (torch.default_generator, *defaults, *generators)}

    def found(self, rule, line, what, fix=None):
        """Note a finding, one per rule and line."""
        self.rows.setdefault((rule, line), (rule, str(line), what, fix or rules.FIXES[rule]))

    def table(self):
        """The findings as a DataFrame, in the order of the lines."""
        order = sorted(self.rows, key=lambda key: ("", 0) if isinstance(key[1], str) else key[1][:2])
        return pd.DataFrame([self.rows[key] for key in order], columns=["rule", "line", "found", "fix"])

    def autocast(self):
        """Autocast entered outside the step keeps its casts from one step to the next."""
        if torch.is_autocast_enabled(self.gpu) and torch.is_autocast_cache_enabled():
            self.found("autocast cache", "around the step", "autocast is on outside the step, with its cache")

    def put(self, others, undo):
        """Copy the other inputs into the inputs, as one does before a replay."""
        mismatches = list(rules.compare_inputs(self.inputs, others))
        for name, what in mismatches:
            self.found("inputs", name, what)
        if not mismatches and others is not self.inputs:
            for static, new in zip(tree_leaves(self.inputs), tree_leaves(others), strict=True):
                if isinstance(static, torch.Tensor):
                    undo.written(static.untyped_storage())
                    static.data.copy_(new)

    def run(self, undo, judged=True):
        """Run the step once, logged; return its operators."""
        log = OpLog(partial(self.before, undo, judged), undo.written)
        with ExitStack() as stack:
            if judged:
                stack.enter_context(listening(self.gpu, self.note))
                book = stack.enter_context(Bookkeeping([place for place, _ in undo.places], self.changed))
            stack.enter_context(log)
            result = self.step(*self.inputs)
        if judged and any(isinstance(leaf, int | float) for leaf in tree_leaves(result)):
            self.found("output", book.returned, "a Python number is returned")
        return log.ops

    def note(self, rule, what, only_if_new=False):
        """Note a finding at the line that runs; the part of torch that runs may know better."""
        line, library = here(self.thread)
        if only_if_new and any(known == line for _, known in self.rows):
            return
        other_rule, fix = rules.special(library) if rule == "sync" else (None, None)
        self.found(other_rule or rule, line, what, fix)

    def before(self, undo, judged, func, args, kwargs):
        """Judge an operator that is about to run, and keep the state of its generator."""
        generator = kwargs.get("generator")
        if judged:
            fault = rules.judge_op(func, args, kwargs, self.gpu)
            if fault and not (fault[0] == "CPU work" and here(self.thread)[1].startswith("optim/")):
                self.note(*fault)
            if generator is not None and generator._cdata not in self.known:
                self.note("generator", "a generator of its own draws random numbers")

    def changed(self, name, line):
        self.found("CPU work", line, f"{name} changes on the CPU")
