"""Check: what is found about a step, while it runs."""

import threading
from collections.abc import Callable, Iterable
from contextlib import ExitStack

import torch
from torch.utils._pytree import tree_leaves

from capturable import rules
from capturable.differences import differences
from capturable.findings import Finding, Findings
from capturable.fixes import FIXES, NOTES
from capturable.host_calls import as_if_capturing, listening
from capturable.operators import CpuOnly, Op, OpLog, address
from capturable.python_state import PythonStateWatch, values_at, watched
from capturable.restore import Restore
from capturable.restore.reachable import Place
from capturable.streams import joins
from capturable.user_lines import Line, here


class Check:
    """What is found about one step, while it runs."""

    def __init__(self, generators: Iterable[torch.Generator], device: str | None) -> None:
        self.rows, self.thread, self.places, self.changing = {}, threading.get_ident(), [], None
        self.written = lambda tensor: None
        self.gpu = device or ("cuda" if torch.cuda.is_available() else "cpu")
        defaults = torch.cuda.default_generators if self.gpu == "cuda" else ()
        self.known = {generator._cdata for generator in (torch.default_generator, *defaults, *generators)}

    def watch(self, places: Iterable[Place]) -> None:
        """Look at what there is before the step."""
        self.places = watched(places)
        if torch.is_autocast_enabled(self.gpu) and torch.is_autocast_cache_enabled():
            self.found("autocast cache", "around the step", "autocast is on outside the step, with its cache")

    def found(self, rule: str, line: Line | str, what: str, fix: str | None = None, inside: Line | None = None) -> None:
        """Note a finding, one per rule and line; inside: the line of a library's that the user's line came to."""
        where = f" (in {inside.file.rpartition('site-packages/')[2]}:{inside.number})" if inside else ""
        file, number = (line.file, line.number) if isinstance(line, tuple) else ("", 0)
        level = "note" if rule in NOTES else "fault"
        finding = Finding(rule, str(line), what + where, fix or FIXES[rule], level, file, number)
        self.rows.setdefault((rule, line), finding)

    def findings(self) -> Findings:
        """All findings, in the order of the lines."""
        order = sorted(self.rows, key=lambda key: ("", 0) if isinstance(key[1], str) else key[1][:2])
        return Findings(self.rows[key] for key in order)

    def put(self, inputs: tuple, others: tuple) -> bool:
        """Copy the other inputs into the inputs, as one does before a replay; return whether they fit."""
        mismatches = list(rules.compare_inputs(inputs, others))
        for name, what in mismatches:
            self.found("inputs", name, what)
        if not mismatches and others is not inputs:
            for static, new in zip(tree_leaves(inputs), tree_leaves(others), strict=True):
                if isinstance(static, torch.Tensor):
                    self.written(static)
                    static.data.copy_(new)
        return not mismatches

    def run(self, step: Callable, judged: bool = True) -> list[Op]:
        """Run the step once, logged; return its operators."""
        before = values_at(self.places)
        with ExitStack() as stack:
            log, book = self.start(stack, judged)
            result = step()
        self.joins = None  # which knows this object: a ring would keep all memory
        pairs = enumerate(zip(before, values_at(self.places), strict=True))
        self.changing = (self.changing or set()) | {number for number, (old, new) in pairs if old != new}
        if judged and any(isinstance(leaf, int | float) for leaf in tree_leaves(result)):
            self.found("output", book.returned, "a Python number is returned")
        return log.ops

    def start(self, stack: ExitStack, judged: bool = True) -> tuple[OpLog, PythonStateWatch]:
        """Log and judge what runs until the stack is closed; return the OpLog and the PythonStateWatch."""
        self.cpu, self.joins = CpuOnly(), None
        stack.enter_context(as_if_capturing())
        changing = range(len(self.places)) if self.changing is None else sorted(self.changing)
        book = PythonStateWatch([self.places[number] for number in changing], self.changed)
        log = OpLog(self.before if judged else lambda *_: None, self.written)
        if judged:
            stack.enter_context(listening(self.gpu, self.note))
            if self.gpu == "cuda":
                self.joins = stack.enter_context(joins(lambda rule, what, line: self.found(rule, line, what)))
            else:
                stack.enter_context(self.cpu)
            stack.enter_context(book)
        stack.enter_context(log)
        return log, book

    def run_plainly(self, step: Callable) -> None:
        """Run the step under sync debug mode alone: below a dispatch mode, some operators take another way."""
        with as_if_capturing(), listening(self.gpu, self.note):
            step()

    def compare(self, first: list[Op], second: list[Op], kept: set[int] | None = None) -> None:
        """Note what differs between two runs; kept as for differences."""
        for rule, op, what in differences(first, second, kept):
            special_rule, fix = rules.special(op.library) if rule == "frozen number" else (None, None)
            self.found(special_rule or rule, op.line, what, fix)

    def look_back(self, restore: Restore, ops: list[Op]) -> None:
        """Note the autograd graphs that were there before, and reach what the operators used."""
        used = {where for op in ops for where in op.outside}
        leaves = {id(leaf) for leaf, _, data in restore.leaves if address(data) in used}
        for name in rules.kept_graphs((result() for result in restore.results), leaves):
            self.found("kept graph", name, "holds the autograd graph of an earlier pass")

    def note(self, rule: str, what: str, only_if_new: bool = False) -> None:
        """Note a finding at the line that runs; the part of torch that runs may know better."""
        line, library, inside = here(self.thread)
        if only_if_new and any(known == line for _, known in self.rows):
            return
        other_rule, fix = rules.special(library) if rule == "sync" else (None, None)
        self.found(other_rule or rule, line, what, fix, inside)

    def before(self, func: torch._ops.OpOverload, args: tuple, kwargs: dict, outside: tuple[int, ...]) -> None:
        """Judge an operator that is about to run."""
        fault = rules.judge_op(func, args, kwargs, outside, self.gpu)
        quiet = self.cpu.inside and func._schema.name in ("aten::lift_fresh", "aten::_local_scalar_dense")
        if fault and not quiet and not (fault[0] == "CPU work" and here(self.thread).library.startswith("optim/")):
            self.note(*fault)
        if fault := rules.judge_backward():
            self.note(*fault)
        generator = kwargs.get("generator")
        if generator is not None and generator._cdata not in self.known:
            self.note("generator", "a generator of its own draws random numbers")
        if self.joins and not torch._C._current_autograd_node():  # autograd joins its streams itself
            self.joins.ran(torch.cuda.current_stream().cuda_stream, here(self.thread).line)

    def changed(self, name: str, line: Line) -> None:
        """Note that a Python value changes at a line."""
        self.found("CPU work", line, f"{name} changes on the CPU")
