"""StepCheck: what is found about a step, while it runs."""

import re
import threading
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from capturable import judge
from capturable.changed_values import reads_of_changed_values
from capturable.cpu_as_gpu import CpuAsGpu, StandInAsGpu
from capturable.differences import first_difference_text, operator_differences
from capturable.findings import Finding, Findings, Report, short_path
from capturable.graphs_inside import functions_with_graphs
from capturable.host_calls import as_if_capturing, eager_control_flow, watch_host_calls
from capturable.ignored_findings import misspelt_rule_warnings, without_ignored
from capturable.inputs import Call, Difference, merge_python_values, named_leaves, tensor_pairs
from capturable.operators import Op, OpLog, storage_address
from capturable.python_state import PythonStateWatch, places_to_watch, values_at
from capturable.restore import Restore
from capturable.restore.reachable import Place, is_a
from capturable.rules import fix_of, level_of, number_fix, rule_of_torch_file
from capturable.stand_in import stand_in_device
from capturable.streams import Joins, watch_joins
from capturable.user_lines import Line, here

DIFFERING = ("frozen number", "path", "shape")

Key = tuple[str, Line | str, Line | None]  # the rule, the user's line or a name, the library's line


class StepCheck:
    """What is found about one step, while it runs."""

    def __init__(self, generators: Iterable[torch.Generator], device: str | None) -> None:
        known = device or ("cuda" if torch.cuda.is_available() else "cpu")
        self.stand_in = stand_in_device() if known == "cuda" else None
        # below its functions, the stand-in's tensors are those of the CPU
        self.gpu = "cpu" if self.stand_in is not None else known
        where = "stand-in" if self.stand_in is not None else known
        self.report = Report(device=where, torch=torch.__version__)
        self.rows: dict[Key, Finding] = {}
        self.thread = threading.get_ident()
        self.places: list = []
        self.changing: set[int] | None = None
        self.written: Callable[[torch.Tensor], None] = lambda tensor: None
        self.as_gpu = self._as_gpu()
        self.settings: dict[int, dict[str, float]] = {}  # of optimizers, by id
        self.moved: dict[int, tuple[str, Line]] = {}  # address: name and line that put it there
        self.held: list[torch.UntypedStorage] = []  # so that what moves has another address
        self.joins: Joins | None = None
        self.ran: set[Line] = set()  # the user's lines
        self.files: set[str] = set()  # of the user's, whose lines have run
        self.asked: list[tuple[Line, Line | None]] = []  # lines that ask whether they are captured
        on_gpu = self.gpu == "cuda" or self.stand_in is not None
        defaults = torch.cuda.default_generators if on_gpu else ()
        self.known = {g._cdata for g in (torch.default_generator, *defaults, *generators)}

    def _as_gpu(self) -> CpuAsGpu:
        if self.stand_in is None:
            return CpuAsGpu(self.note_here)
        return StandInAsGpu(self.note_here, self.stand_in)

    def watch_places(self, places: Iterable[Place]) -> None:
        """Look at what there is before the step."""
        self.places = places_to_watch(places)
        if torch.is_autocast_enabled(self.gpu) and torch.is_autocast_cache_enabled():
            what = "autocast is on outside the step, with its cache"
            self.note_finding("autocast cache", "around the step", what)

    def watch_new_places(self, places: Iterable[Place]) -> None:
        """Look at what the step has made as well: it changes."""
        known = {(id(place.holder), place.key) for place in self.places if isinstance(place, Place)}
        seen = [place for place in places_to_watch(places) if isinstance(place, Place)]
        made = [place for place in seen if (id(place.holder), place.key) not in known]
        before = len(self.places)
        self.places = [*self.places, *made]
        self.changing = (self.changing or set()) | set(range(before, len(self.places)))

    def judge_reached_code(self, step: Callable, places: list[Place]) -> None:
        """Judge what the step can get at: graphs of compiled functions, and values that code
        outside of it changes."""
        for name, setting in functions_with_graphs(places, step):
            self.note_finding("graph", name, f"a function with graphs of its own ({setting})")
        for read in reads_of_changed_values(self.ran, places):
            when = "in each call" if read.in_step else "between calls"
            what = f"{read.name} is read here, and line {read.changed_at} changes it {when}"
            self.note_finding("path" if read.branches else "frozen number", read.line, what)

    def judge_copy_targets(self, static: Call) -> None:
        """Judge the tensors that the graph will read."""
        for name, value in named_leaves(static):
            if isinstance(value, torch.Tensor) and value.is_inference():
                what = "was made under inference_mode, so copy_ into it is refused outside of that"
                self.note_finding("inputs", name, what, "make it outside of torch.inference_mode()")
            elif self.report.given and _is_leaf_requiring_grad(value):
                what = "requires a gradient, so copy_ into it is refused where gradients are on"
                fix = "copy into it under torch.no_grad()"
                self.note_finding("inputs", name, what, fix, level="note")

    def note_finding(
        self,
        rule: str,
        line: Line | str,
        what: str,
        fix: str | None = None,
        inside: Line | None = None,
        level: str | None = None,
    ) -> None:
        """Note a finding, one per rule and line; inside: the line of a library that the user's
        line came to."""
        key = (rule, line, inside)
        if key in self.rows:
            return
        place = f"{short_path(inside.file)}:{inside.number} in {inside.function}" if inside else ""
        file, number = (line.file, line.number) if isinstance(line, Line) else ("", 0)
        level = level or level_of(rule)
        fix = fix or fix_of(rule)
        self.rows[key] = Finding(rule, str(line), what, fix, level, file, number, place)

    def findings(self) -> Findings:
        """All findings that no comment accepts, in the order of the lines."""
        order = sorted(self.rows, key=_sort_key)
        self.report.warnings = misspelt_rule_warnings(self.files)
        return without_ignored(Findings((self.rows[key] for key in order), self.report))

    def copy_batch_into_inputs(
        self, static: Call, real: Call, found: list[Difference]
    ) -> tuple[list[Difference], Call]:
        """Copy the other batch into the inputs, as one does before a replay. found: what differs
        between them, before the step has changed its inputs.

        Returns the Python values that differ, and the call that a loop would make then.
        """
        misfits = [difference for difference in found if not difference.python]
        for difference in misfits:
            self.note_finding("inputs", difference.name, difference.what)
        if not misfits and real is not static:
            for tensor, new in tensor_pairs(static, real):
                self.written(tensor)
                tensor.data.copy_(new)
        values = [difference for difference in found if difference.python]
        return values, merge_python_values(static, real) if values and not misfits else static

    def run_logged(
        self, step: Callable[[], Any], judged: bool = True, capturing: bool = True
    ) -> list[Op]:
        """Run the step once, logged; return its operators.
        capturing: what code that asks is told.
        """
        before = values_at(self.places)
        values = [place.get() for place in self.places]
        tensors = [value for value in values if is_a(value, torch.Tensor)]
        self.held += [tensor.untyped_storage() for tensor in tensors if storage_address(tensor)]
        with ExitStack() as stack:
            log, state = self.start_logging(stack, judged, capturing)
            result = step()
        self.joins = None  # which knows this object: a ring would keep all memory
        pairs = enumerate(zip(before, values_at(self.places), strict=True))
        changed = {number for number, (old, new) in pairs if old != new}
        self.changing = (self.changing or set()) | changed
        self.report.runs += 1
        self.report.operators = len(log.ops)
        self.files |= {op.line.file for op in log.ops}
        self.ran |= state.ran
        if judged and any(isinstance(leaf, int | float) for leaf in tree_leaves(result)):
            self.note_finding("output", state.returned or "the step", "a Python number is returned")
        return log.ops

    def start_logging(
        self, stack: ExitStack, judged: bool = True, capturing: bool = True
    ) -> tuple[OpLog, PythonStateWatch]:
        """Log and judge what runs until the stack is closed; return the log and the watch over
        Python values."""
        self.joins = None
        stack.enter_context(as_if_capturing(capturing, self._remember_capture_check))
        stack.enter_context(eager_control_flow())
        numbers = range(len(self.places)) if self.changing is None else sorted(self.changing)
        places = [self.places[number] for number in numbers]
        if self.changing is None:  # all tensors at each line would take too long
            places = [place for place in places if not isinstance(place.get(), torch.Tensor)]
        state = PythonStateWatch(places, self.note_value_change, self._remember_new_address)
        log = OpLog(self.written)
        if judged:
            self.as_gpu = self._as_gpu()
            log = OpLog(self.written, self.judge_operator, self.as_gpu.ran)
            stack.enter_context(self._watch_calls())
            if self.gpu == "cuda":
                self.joins = stack.enter_context(watch_joins(self.note_finding))
            else:
                stack.enter_context(self.as_gpu)
            stack.enter_context(state)
        stack.enter_context(log)
        return log, state

    def _watch_calls(self) -> Any:
        return watch_host_calls(self.gpu, self.note_here, self._is_host, self._judge_optimizer_step)

    def _judge_optimizer_step(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        """Judge an optimizer that is about to step, and whether its settings have changed."""
        for fault in judge.judge_optimizer(optimizer):
            self.note_here(fault.rule, fault.what, fix=fault.fix)
        now = judge.python_numbers_of(optimizer)
        for name, old in self.settings.get(id(optimizer), now).items():
            if now.get(name, old) != old:
                what = f"{name} of {type(optimizer).__name__} was {old!r}, then {now[name]!r}"
                self.note_here("frozen number", what, fix=judge.hyperparameter_fix(name))
        self.settings[id(optimizer)] = now

    def run_watching_host_calls(self, step: Callable[[], Any]) -> None:
        """Run the step under sync debug mode alone: below a dispatch mode, some operators take a
        different path."""
        with as_if_capturing(True, self._remember_capture_check), self._watch_calls():
            step()
        self.report.runs += 1

    def compare(self, first: list[Op], second: list[Op], kept: set[int] | None = None) -> bool:
        """Note what differs between two runs; whether anything did. kept: as for differences."""
        seen = False
        for rule, op, what, moved in operator_differences(first, second, kept):
            seen = seen or rule in DIFFERING
            if rule == "moved tensor":
                self._note_moved_tensors(op, what, moved)
                continue
            known = rule_of_torch_file(op.library) if rule == "frozen number" else None
            if known and ("frozen number", op.line, op.inside) in self.rows:
                continue  # the setting that changes is named already
            fix = number_fix(op.name) if rule == "frozen number" else None
            found = (known.rule, known.fix) if known else (rule, fix)
            self.note_finding(found[0], op.line, what, found[1], op.inside)
        return seen

    def _note_moved_tensors(self, op: Op, what: str, addresses: set[int]) -> None:
        """Note tensors that moved, by their names and the lines that moved them, where known."""
        known = {self.moved[address] for address in addresses & self.moved.keys()}
        for name, line in sorted(known):
            self.note_finding(
                "moved tensor", line, f"{name} is at another address each time; {what}"
            )
        if not known:
            told = f"{what.removesuffix('it')}a tensor that is at another address each time"
            self.note_finding("moved tensor", op.line, told, inside=op.inside)

    def _remember_new_address(self, name: str, address: int, line: Line) -> None:
        if self.moved.get(address, ("", None))[1] != line:  # views of one memory: the first name
            name = re.sub(r"\._(modules|parameters|buffers)\['(\w+)'\]", r".\2", name)
            self.moved[address] = name, line

    def judge_python_inputs(self, values: list[Difference], differ: bool) -> None:
        """Note Python values among the inputs that change; differ: whether the operators changed
        with them."""
        for name, what, _ in values:
            told = what if differ else f"{what}; no operator took it in these runs"
            self.note_finding("frozen number", name, told, level="fault" if differ else "note")

    def judge_capture_checks(
        self, captured: list[Op], rerun: Callable[[], list[Op]] | None = None
    ) -> None:
        """Note code that asked whether it is captured, and what the answer changed first.

        captured: what ran when the answer was yes; rerun: runs the step again with the answer no.
        """
        if not self.asked:
            return
        what = "code asks whether it is being captured"
        if rerun:
            what += first_difference_text(captured, rerun())
        for line, inside in dict.fromkeys(self.asked):
            self.note_finding("capture check", line, what, inside=inside)

    def _remember_capture_check(self) -> None:
        line, _, inside = here(self.thread)
        self.asked.append((line, inside))

    def judge_kept_graphs(self, restore: Restore, ops: list[Op]) -> None:
        """Note the autograd graphs that were there before, and reach what the operators used."""
        used = {where for op in ops for where in op.outside}
        leaves = {id(leaf) for leaf, _, data in restore.leaves if storage_address(data) in used}
        for name in judge.autograd_holders((result() for result in restore.results), leaves):
            self.note_finding("kept graph", name, "holds the autograd graph of an earlier pass")

    def note_here(
        self,
        rule: str,
        what: str,
        only_if_new: bool = False,
        fix: str | None = None,
        library: str | None = None,
    ) -> None:
        """Note a finding at the line that runs; the part of torch that runs may know better."""
        line, innermost, inside = here(self.thread)
        if only_if_new and any(known[1:] == (line, inside) for known in self.rows):
            return
        library = library or innermost
        known = rule_of_torch_file(library) if rule == "sync" else None
        if known:
            what = f"{what}, in torch/{library}"
            rule, fix = known.rule, known.fix
        self.note_finding(rule, line, what, fix, inside)

    def judge_operator(
        self, func: torch._ops.OpOverload, args: tuple, kwargs: dict, outside: tuple[int, ...]
    ) -> None:
        """Judge an operator that is about to run."""
        making = self.as_gpu.making
        kinds = judge.DeviceKinds(self.gpu, self._is_host, self.as_gpu.is_pinned, making)
        fault = judge.judge_op(func, args, kwargs, outside, kinds)
        if fault and not self._is_false_alarm(fault, func, args):
            self.note_here(fault.rule, fault.what, fix=fault.fix)
        if fault := judge.judge_backward():
            self.note_here(*fault[:2])
        generator = kwargs.get("generator")
        drawn = fault and fault.rule == "CPU random numbers"
        if generator is not None and generator._cdata not in self.known and not drawn:
            self.note_here("generator", "a generator of its own draws random numbers")
        # autograd joins its streams itself
        if self.joins and not torch._C._current_autograd_node():
            self.joins.ran(torch.cuda.current_stream().cuda_stream, here(self.thread).line)

    def _is_host(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor is on the CPU, or would be with a GPU."""
        return self.as_gpu.is_host(tensor) if self.gpu == "cpu" else tensor.device.type != self.gpu

    def _is_false_alarm(self, fault: judge.Fault, func: torch._ops.OpOverload, args: tuple) -> bool:
        """Whether a fault is the CPU's alone, or an optimizer's that has a finding of its own."""
        if fault.rule == "CPU work" and here(self.thread).library.startswith("optim/"):
            return True
        return self.as_gpu.is_absent_on_gpu(func._schema.name, args)

    def note_value_change(self, name: str, line: Line) -> None:
        """Note that a Python value changes at a line."""
        self.note_finding("CPU work", line, f"{name} changes on the CPU")


def _is_leaf_requiring_grad(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_leaf and value.requires_grad


def _sort_key(key: Key) -> tuple:
    """Where a finding stands: names first, then files, lines, and a library's lines."""
    _, line, inside = key
    place = line[:2] if isinstance(line, Line) else ("", 0)
    return (*place, *(inside[:2] if inside else ("", 0)))
