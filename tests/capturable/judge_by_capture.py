"""python -m tests.capturable.judge_by_capture RESULT.json      on a machine with a CUDA GPU

What a real capture does to each of the unseen steps, and what preflight says of it, on the CPU, on
the GPU, and with verify. The capture is made here, without capturable's help: a warm-up on the
side stream, the capture, three replays. Three eager steps of a second copy are the truth.
"""

import contextlib
import io
import json
import linecache
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from torch.utils._pytree import tree_leaves, tree_map_only

from capturable import preflight
from capturable.inputs import Call, merged, tensor_pairs
from capturable.rules import RULES
from tests.capturable import unseen_steps
from tests.capturable.judged_steps import STEPS

MODES = {"cpu": ("cpu", False), "gpu": ("cuda", False), "verify": ("cuda", True)}


def made(name, device):
    torch.manual_seed(0)
    return STEPS[name].make(device)


def values(result, case):
    """What a step returned and what it changed, as copies on the CPU."""
    leaves = tree_leaves([result, case.state()])
    return [v.detach().cpu().clone() if isinstance(v, torch.Tensor) else v for v in leaves]


def batches(case):
    """The static call, and that of the other batch."""
    static = Call(case.inputs, dict(case.kwargs))
    return static, Call(case.others or case.inputs, dict(case.other_kwargs or case.kwargs))


def steps(case, run):
    """The values after three steps, the second on the other batch, put into the static tensors."""
    static, real = batches(case)
    first = Call(*tree_map_only(torch.Tensor, torch.clone, tuple(static)))
    found = []
    for batch in (first, real, first):
        for tensor, new in tensor_pairs(static, batch):
            tensor.copy_(new)
        found.append(values(run(merged(static, batch)), case))
    return found


def draws(case, run):
    """The values after each of eight steps from the same state, on the same batch."""
    state = [value for value in case.state() if isinstance(value, torch.Tensor)]
    start, found = [value.detach().clone() for value in state], []
    for _ in range(8):
        for value, before in zip(state, start, strict=True):
            value.data.copy_(before)
        found.append(values(run(batches(case)[0]), case))
    return found


def eager(name, seen=steps):
    """The values after eager steps that follow a warm-up."""
    case = made(name, "cuda")
    case.step(*case.inputs, **case.kwargs)
    return seen(case, lambda call: case.step(*call.args, **call.kwargs))


def replayed(name, seen=steps):
    """The values after replays that follow a warm-up, or the capture's error."""
    case = made(name, "cuda")
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        case.step(*case.inputs, **case.kwargs)
    torch.cuda.current_stream().wait_stream(stream)
    try:
        with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
            result = case.step(*case.inputs, **case.kwargs)
    except Exception as error:
        clear(graph, stream)
        return f"{type(error).__name__}: {str(error).splitlines()[0]}"

    def replay(_):
        graph.replay()
        return result

    return seen(case, replay)


def clear(graph, stream):
    """End a capture that failed; another one frees the generator that the lost one holds."""
    torch.cuda.set_stream(stream)
    if torch.cuda.is_current_stream_capturing():
        with contextlib.suppress(RuntimeError):
            graph.capture_end()
    torch.cuda.set_stream(torch.cuda.default_stream())
    with torch.cuda.graph(torch.cuda.CUDAGraph(), stream=stream):
        torch.zeros(1, device="cuda")
    torch.cuda.synchronize()


def alike(one, other):
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return one.shape == other.shape and torch.allclose(one, other, 1e-3, 1e-4, equal_nan=True)
    return type(one) is type(other) and one == other


def equal(one, other):
    return len(one) == len(other) and all(map(alike, one, other))


def truth(name):
    """refused, different or clean, and the capture's error; of random steps, whether they vary."""
    seen = draws if STEPS[name].random else steps
    found = replayed(name, seen)
    if isinstance(found, str):
        return "refused", found
    expected = eager(name, seen)
    if STEPS[name].random:
        varied = [not all(equal(runs[0], run) for run in runs) for runs in (expected, found)]
        return ("clean" if varied[0] == varied[1] else "different"), ""
    return ("clean" if all(map(equal, expected, found)) else "different"), ""


def asked(name, device, verify):
    """preflight's verdict: right, elsewhere, missed, quiet or false, and its faults."""
    case, rules = made(name, device), STEPS[name].rules
    options = {"other_inputs": case.others, "kwargs": case.kwargs}
    options |= {"other_kwargs": case.other_kwargs, "device": device, "verify": verify}
    faults = preflight(case.step, *case.inputs, **options).faults
    here = [
        finding
        for finding in faults
        if finding.rule in rules
        and linecache.getline(finding.file, finding.number).rstrip().endswith("# here")
    ]
    verdict = "right" if here else "elsewhere" if faults else "missed"
    if not rules:
        verdict = "false" if faults else "quiet"
    return verdict, [[f.rule, f.line, f.found, f.fix] for f in faults]


def row(name):
    rules = STEPS[name].rules
    label = "refused" if any(RULES[rule].kind == "refused" for rule in rules) else "different"
    found = {"label": label if rules else "clean", "rules": rules}
    for mode, (device, verify) in MODES.items():
        try:
            verdict, faults = asked(name, device, verify)
        except Exception as error:
            verdict, faults = "crashed", f"{type(error).__name__}: {error}"[:500]
        found |= {mode: verdict, f"{mode}_faults": faults}
    try:
        found["capture"], found["error"] = truth(name)
    except Exception as error:
        found["capture"], found["error"] = "failed", f"{type(error).__name__}: {error}"[:500]
    return found


def main():
    """Judge all steps; keep the rows after each, for a process that a fault may end."""
    start, rows = time.perf_counter(), {}
    for name, kind in STEPS.items():
        if kind.make.__module__ != unseen_steps.__name__:
            continue
        # score_in_a_log, refused, leaves its thread without autograd (torch 2.15)
        with contextlib.redirect_stdout(io.StringIO()), ThreadPoolExecutor(1) as thread:
            rows[name] = thread.submit(row, name).result()
        versions = {"torch": torch.__version__, "gpu": torch.cuda.get_device_name()}
        seconds = round(time.perf_counter() - start, 1)
        known = versions | {"seconds": seconds, "steps": rows}
        Path(sys.argv[1]).write_text(json.dumps(known, indent=1))
    for mode in (*MODES, "capture"):
        verdicts = [rows[name][mode] for name in rows]
        print(mode, {verdict: verdicts.count(verdict) for verdict in sorted(set(verdicts))})


if __name__ == "__main__":
    main()
