"""How near the step of examples/triton_decoder.py comes to the bandwidth limit, and its switches:

    python -m benchmarks.decode_step --data-sheet 3.35  # TB/s of your GPU; may be left out

checks and times IDEAS, each in a CUDA graph, and writes benchmarks/results/decode-step-<gpu>.md.
"""

import argparse
import sys
import tempfile
from collections.abc import Callable
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import torch
from torch import Tensor

from benchmarks.report import provenance_section, publish, spread, table
from examples.decoder import Config, Decoder, prefill
from examples.triton_decoder import TritonDecoder, read_all
from helpers.capture import capture_step, unchanged
from helpers.profiling import record_trace
from helpers.spread import quartiles
from helpers.timing import measure
from helpers.trace import read_trace

State = tuple[Tensor, Tensor, Tensor]  # tokens, input_pos, kv_cache

TODAY: dict[str, Any] = {"splits": 4, "argmax_in_head": True, "pdl": True, "preload_cache": True}
CHECKED_FROM = 254  # so the checks cross from one split of the cache to the next
CHECKED_STEPS = 48
EXACT_STEPS = 4  # also computed in float32
TIMED_FROM = 200
TIMED_STEPS = 16  # per visit
READS = 10  # per visit
ROUNDS = 40


class Idea(NamedTuple):
    """Why it might be faster, and the switches that differ from TODAY's."""

    reason: str
    switches: dict[str, Any]
    tokens_per_graph: int = 1


IDEAS = {
    "today": Idea("The step of the page.", {}),
    "4 tokens per graph": Idea(
        "Within a graph, dependent launch overlaps the end of a token with the next one.", {}, 4
    ),
    "one split": Idea("Without splits there is nothing to add up.", {"splits": 1}),
    "head: 8 rows, 8 warps": Idea(
        "With larger programs, half as many start and end during the head's product.",
        {"tiles": {"head": (8, 1024, 8)}},
    ),
    "gate_up: 4 warps": Idea(
        "Twice the threads per row leave each thread half of the sum.",
        {"tiles": {"gate_up": (1, 0, 4)}},
    ),
}


def capture(decoder: TritonDecoder, state: State, n_tokens: int) -> Callable[[], Tensor]:
    """A graph that decodes n_tokens and returns the logits of the last one."""

    def steps():
        for _ in range(n_tokens):
            logits = decoder.step(*state)
        return logits

    with unchanged(*state[:2]):
        return capture_step(steps)


def exact_steps(model: Decoder, state: State) -> list[tuple[Tensor, Tensor]]:
    """Each step's token and logits in float32."""
    token, input_pos = (tensor.clone() for tensor in state[:2])
    kv_cache = state[2].float()
    exact_model = deepcopy(model).float()
    steps = []
    for _ in range(EXACT_STEPS):
        logits = exact_model(token, input_pos, kv_cache)
        steps.append((token, logits))
        token = logits.argmax(-1, keepdim=True)
        input_pos += 1
    return steps


def relative_error(
    replay: Callable[[], Tensor], state: State, exact: list[tuple[Tensor, Tensor]]
) -> float:
    """The mean relative error of the logits, given the tokens of the exact steps."""
    tokens, input_pos = state[:2]
    input_pos.fill_(CHECKED_FROM)
    errors = []
    for token, logits in exact:
        tokens.copy_(token)
        errors.append(((replay() - logits).norm() / logits.norm()).item())
    return sum(errors) / len(errors)


def write(replay: Callable[[], Tensor], state: State, first: Tensor, n_tokens: int) -> list[int]:
    """The last token of each replay, from the first token on."""
    tokens, input_pos = state[:2]
    tokens.copy_(first)
    input_pos.fill_(CHECKED_FROM)
    written = []
    for _ in range(CHECKED_STEPS // n_tokens):
        replay()
        written.append(int(tokens))
    return written


def checked_graph(
    name: str, decoder: TritonDecoder, state: State, exact: list[tuple[Tensor, Tensor]]
) -> tuple[Callable[[], Tensor], float]:
    """The graph of an idea, and its relative error.

    Raises RuntimeError where the graph writes other tokens than an earlier run, whose graph holds
    one token.
    """
    replay = capture(decoder, state, 1)
    error = relative_error(replay, state, exact)
    first = exact[0][0]
    one_by_one = write(replay, state, first, 1)
    n_tokens = IDEAS[name].tokens_per_graph
    if n_tokens > 1:
        replay = capture(decoder, state, n_tokens)
    if write(replay, state, first, n_tokens) != one_by_one[n_tokens - 1 :: n_tokens]:
        raise RuntimeError(f"Two runs of {name!r} wrote different tokens.")
    return replay, error


def visit(step: Callable[[], object], input_pos: Tensor, n_calls: int) -> None:
    """Calls of step in a row, from TIMED_FROM on."""
    input_pos.fill_(TIMED_FROM)
    for _ in range(n_calls):
        step()


def kernels_of(replay: Callable[[], Tensor], input_pos: Tensor) -> int:
    """How many kernels a replay runs, from a trace."""
    input_pos.fill_(TIMED_FROM)
    with tempfile.TemporaryDirectory() as folder:
        trace = read_trace(record_trace(replay, Path(folder) / "trace.json.gz", steps=3))
    return len(trace.gpu.query("step == 1 and kind == 'kernel'"))


def measure_ideas() -> tuple[pd.DataFrame, int, float]:
    """A row for each idea, the bytes that a step reads, and the read bandwidth in TB/s.

    Raises RuntimeError for an idea whose logits are further from float32 than those of today.
    """
    config = Config()
    model = Decoder(config, "cuda", torch.bfloat16).requires_grad_(False)
    torch.manual_seed(0)
    prompt = torch.randint(config.vocab_size, (1, CHECKED_FROM), device="cuda")
    state = prefill(model, config, [prompt])
    exact = exact_steps(model, state)

    input_pos, kv_cache = state[1:]
    replays, errors = {}, {}
    visits: dict[str, Callable[[], object]] = {}
    for name, idea in IDEAS.items():
        decoder = TritonDecoder(model, config, **TODAY | idea.switches)
        replays[name], errors[name] = checked_graph(name, decoder, state, exact)
        if not errors[name] <= 1.25 * errors["today"]:  # nan is wrong, too
            raise RuntimeError(
                f"The error of {name!r} is {errors[name]:.4f}: its logits are wrong."
            )
        n_calls = TIMED_STEPS // idea.tokens_per_graph
        visits[name] = partial(visit, replays[name], input_pos, n_calls)

    data = torch.zeros(2**31, dtype=torch.uint8, device="cuda")
    visits["read"] = partial(visit, partial(read_all, data), input_pos, READS)
    times = quartiles(measure(visits, ROUNDS, burst=1, steps=1, warmup=2), "step_us")
    found = times.drop("read") / TIMED_STEPS
    found["error"] = pd.Series(errors)
    found["kernels"] = [
        kernels_of(replays[name], input_pos) / IDEAS[name].tokens_per_graph for name in found.index
    ]
    n_bytes = sum(weight.nbytes for weight in model.parameters()) + kv_cache.nbytes
    return found, n_bytes, len(data) * READS / times["median"]["read"] / 1e6


def report(
    found: pd.DataFrame, n_bytes: int, read_bandwidth: float, data_sheet: float | None
) -> str:
    """The page, Markdown; bandwidths in TB/s."""
    command = "python -m benchmarks.decode_step"
    bandwidths = {"read bandwidth": read_bandwidth}
    if data_sheet is not None:
        command += f" --data-sheet {data_sheet:g}"
        bandwidths["data sheet"] = data_sheet
    limits_us = {of: n_bytes / bandwidth / 1e6 for of, bandwidth in bandwidths.items()}
    rows = {}
    for name, row in found.iterrows():
        shares = {f"of the {of}": f"{us / row['median']:.1%}" for of, us in limits_us.items()}
        rows[name] = {
            "µs per token, median [quartiles]": spread(row.q1, row["median"], row.q3),
            **shares,
            "kernels per token": f"{row.kernels:g}",
            "relative error": f"{row.error:.4f}",
        }
    reasons = [f"- **{name}**: {IDEAS[name].reason}" for name in found.index]
    return f"""# What was tried to shorten a decode step

Written by `{command}`, never by hand.

A step of `examples/triton_decoder.py` reads {n_bytes / 1e9:.3f} GB of weights and cache. A kernel
that only reads reaches {read_bandwidth:.2f} TB/s here, so it would take
{limits_us["read bandwidth"]:.0f} µs for them. Each variant decodes {TIMED_STEPS} tokens per visit,
from position {TIMED_FROM} on, in {ROUNDS} interleaved rounds. The error is that of the logits
against float32, at equal tokens. Each variant wrote the same {CHECKED_STEPS} tokens in two runs.

{table(pd.DataFrame.from_dict(rows, "index"))}
{chr(10).join(reasons)}

{provenance_section()}"""


def main(arguments: list[str] | None = None) -> int:
    """Measure, print the page and keep it; returns 2, after a sentence, where it cannot run."""
    parser = argparse.ArgumentParser(description="Time the ideas for a shorter decode step.")
    parser.add_argument(
        "--data-sheet", type=float, metavar="TB/S", help="the GPU's memory bandwidth: a column more"
    )
    options = parser.parse_args(arguments)
    if not torch.cuda.is_available() or torch.cuda.get_device_capability() < (9, 0):
        print("This benchmark needs a GPU of compute capability 9.0 or higher.", file=sys.stderr)
        return 2
    publish(report(*measure_ideas(), options.data_sheet), "decode-step-")
    return 0


if __name__ == "__main__":
    sys.exit(main())
