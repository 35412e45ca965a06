"""Measure the training of an agent next to JAX:  python -m benchmarks.agent

Writes benchmarks/results/agent-<gpu>.md. It needs JAX and Optax: pip install "jax[cuda13]" optax
"""

import gc
import os
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from benchmarks.report import provenance_section, publish, spread, table
from examples import train_agent_off_policy
from examples.train_agent import LONGEST_EPISODE, PPO, WARMUP, CartPole, Graphed
from helpers.profiling import record_trace
from helpers.spread import quartiles
from helpers.timing import measure
from helpers.trace import TraceError, busy_time, read_trace

SIZES = (512, 2_048, 4_096)  # environments
NUM_STEPS, ITERATIONS = 32, 80
ROUNDS = 10
SEEDS = range(5)
EXAM_EVERY = 5  # iterations
OFF_POLICY_ITERATIONS = 1_000
DIGITS = {
    "busy ms": 2,
    "kernels": 0,
    "compile s": 2,
    "capture s": 2,
    "pool MiB": 0,
    "mean length": 0,
}

TITLE = """# An agent, trained in PyTorch and in JAX

Written by `python -m benchmarks.agent`, never by hand.
"""
TABLE = """## An iteration

PPO on CartPole as in `examples/train_agent.py`, 32 steps in each environment, then 16 steps of the
optimizer. `benchmarks/agent_jax.py` is the same in JAX: one `jit` of the iteration, `lax.scan`
inside. Products of float32 matrices run in TF32 in both.

All variants of one number of environments are measured together, in interleaved rounds; host and
step time are medians [quartiles]. Host time is the time until the call returns, GPU busy time and
kernels are those of a profiler trace. Compile seconds are those of the first three iterations
(JAX: of `lower` and `compile`); the compiled graph finds kernels of the row above it in torch's
cache. The last column is the mean length of episodes after 80 iterations, of at most 500 steps.
"""
SOLVED = """## Seconds until an episode lasts 500 of 500 steps

Every fifth iteration is followed by an exam: the agent plays its better action in 512 new
environments, and it has passed if no pole falls within 500 steps. The seconds are those of the
iterations, warm-up and capture included, exams apart; a run ends after 80 iterations.
"""


def pool_mib(pool: tuple) -> float:
    """What the segments of a graph's memory pool take, in MiB."""
    segments = torch.cuda.memory_snapshot()
    return sum(one["total_size"] for one in segments if one["segment_pool_id"] == pool) / 2**20


def seconds_of(work: Callable[[], object]) -> float:
    """How long work takes, the GPU's part included."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    work()
    torch.cuda.synchronize()
    return time.perf_counter() - start


def measure_size(num_envs: int, jax_ppo_class: Any, folder: Path) -> pd.DataFrame:
    """A row for each variant of an iteration with num_envs environments."""
    steps: dict[str, Callable[[], object]] = {}
    facts: dict[str, dict[str, float]] = {}
    for name in ("eager", "graph", "compiled", "compiled graph"):
        ppo = PPO(num_envs, NUM_STEPS, ITERATIONS)
        if "compiled" in name:
            ppo.compile()
        steps[name] = Graphed(ppo.iteration) if "graph" in name else ppo.iteration
        facts[name] = begin(name, steps[name], ppo)

    jax_ppo = jax_ppo_class(num_envs, NUM_STEPS, ITERATIONS)
    steps["JAX"] = jax_ppo.iteration
    for _ in range(ITERATIONS):
        jax_ppo.iteration()
    mean_length = float(jax_ppo.training.env.mean_length)
    facts["JAX"] = {"compile s": jax_ppo.compile_seconds, "mean length": mean_length}

    def wait():
        jax_ppo.wait()
        torch.cuda.synchronize()

    rounds = measure(steps, ROUNDS, warmup=2, wait=wait)
    for name, step in steps.items():
        facts[name] |= traced(step, wait, folder / f"{num_envs}.json.gz")
    return rows_of(rounds, facts)


def begin(name: str, step: Callable[[], object], ppo: PPO) -> dict[str, float]:
    """Train for the first iterations, and say what they took; a graph trains for all of them."""
    first_calls = []
    for _ in range(WARMUP + 1):
        first_calls.append(seconds_of(step))
        ppo.scheduler.step()
    fact = {}
    if "compiled" in name:
        fact["compile s"] = sum(first_calls[:WARMUP])
    if isinstance(step, Graphed):
        fact["capture s"] = first_calls[WARMUP]
        fact["pool MiB"] = pool_mib(step.graph.pool())
        for _ in range(ITERATIONS - WARMUP - 1):
            step()
            ppo.scheduler.step()
        fact["mean length"] = ppo.env.mean_length.item()
    return fact


def traced(step: Callable[[], object], wait: Callable[[], None], path: Path) -> dict[str, float]:
    """GPU busy time and kernels of an iteration; nothing where the profiler sees no GPU work."""

    def step_and_wait():
        step()
        wait()

    try:
        gpu = read_trace(record_trace(step_and_wait, path, steps=1, warmup=1)).gpu
    except TraceError as error:
        print(error, file=sys.stderr)
        return {}
    return {"busy ms": busy_time(gpu) / 1000, "kernels": (gpu.kind == "kernel").sum()}


def rows_of(rounds: pd.DataFrame, facts: dict[str, dict[str, float]]) -> pd.DataFrame:
    """The table of one number of environments: measure's rounds, and facts by variant."""
    columns = {}
    for column in ("host_us", "step_us"):
        spreads = quartiles(rounds, column) / 1000
        columns[column.replace("_us", " ms")] = [spread(*row) for row in spreads.to_numpy()]
    more = pd.DataFrame(facts).T.reindex(columns=list(DIGITS)).round(DIGITS)
    return pd.DataFrame(columns, index=spreads.index).join(more)


class Exam:
    """Plays with an agent's better actions in new environments."""

    def __init__(self, agent: torch.nn.Module, num_envs: int = 512) -> None:
        self.agent = agent
        self.env = CartPole(num_envs)
        self.ended = torch.zeros(num_envs, dtype=torch.bool, device="cuda")
        self.play = Graphed(self.step)

    @torch.no_grad()
    def step(self) -> None:
        """A step in every environment."""
        logits, _ = self.agent(self.env.state)
        self.ended.logical_or_(self.env.step(logits.argmax(-1)))

    def passed(self) -> bool:
        """Does every episode last as long as it may?"""
        self.env.state.uniform_(-0.05, 0.05)
        self.env.length.zero_()
        self.ended.zero_()
        for _ in range(LONGEST_EPISODE - 1):
            self.play()
        return not self.ended.any().item()


def until_solved(seed: int, graph: bool) -> dict[str, float]:
    """Train until an exam is passed; the iterations and seconds that it took."""
    torch.manual_seed(seed)
    ppo = PPO(512, NUM_STEPS, ITERATIONS)
    iteration = Graphed(ppo.iteration) if graph else ppo.iteration
    exam = Exam(ppo.agent)
    seconds = 0.0
    for number in range(1, ITERATIONS + 1):
        seconds += seconds_of(iteration)
        ppo.scheduler.step()
        if number % EXAM_EVERY == 0 and exam.passed():
            return {"iterations": number, "seconds": round(seconds, 2)}
    return {"iterations": float("nan"), "seconds": float("nan")}


def solved() -> pd.DataFrame:
    """A row for each seed: iterations and seconds, eager and as a graph."""
    rows = {}
    for seed in SEEDS:
        row = {}
        for name in ("eager", "graph"):
            found = until_solved(seed, graph=name == "graph")
            row |= {f"{name}: {what}": value for what, value in found.items()}
            gc.collect()
        rows[seed] = row
    return pd.DataFrame(rows).T


def off_policy() -> str:
    """A sentence on examples/train_agent_off_policy.py: are losses equal, and what do they take?"""
    losses, seconds = {}, {}
    for name, flags in {"eager": ["--eager"], "graphs": []}.items():
        line = [f"--iterations={OFF_POLICY_ITERATIONS}", *flags]
        start = time.perf_counter()
        with redirect_stdout(StringIO()):
            losses[name] = torch.stack(train_agent_off_policy.main(line))
        seconds[name] = time.perf_counter() - start
    equal = (losses["eager"] == losses["graphs"]).sum().item()
    return (
        f"TD3 on Pendulum, `examples/train_agent_off_policy.py`: {equal:,} of "
        f"{OFF_POLICY_ITERATIONS:,} losses are bitwise equal; {seconds['eager']:.1f} s in eager, "
        f"{seconds['graphs']:.1f} s as two graphs, warm-up and capture included.\n"
    )


def report(jax_ppo_class: Any, jax_version: str) -> str:
    """Measure everything; the page, Markdown."""
    sizes = {}
    with tempfile.TemporaryDirectory() as folder:
        for num_envs in SIZES:
            sizes[num_envs] = measure_size(num_envs, jax_ppo_class, Path(folder))
            torch.compiler.reset()
            gc.collect()
    parts = [TITLE, provenance_section() + f"- jax: {jax_version}\n", TABLE]
    for num_envs, rows in sizes.items():
        parts.append(table(rows, f"{num_envs:,} environments"))
    parts += [SOLVED, table(solved(), "seed"), "## Off-policy\n", off_policy()]
    return "\n".join(parts)


def main() -> int:
    """Print the page and keep it; returns 2, after a sentence, where it cannot run."""
    if not torch.cuda.is_available():
        print("Benchmarks need a CUDA GPU, and torch sees none here.", file=sys.stderr)
        return 2
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    try:
        import jax

        from benchmarks.agent_jax import JaxPPO
    except ModuleNotFoundError:
        print('This benchmark needs JAX: pip install "jax[cuda13]" optax', file=sys.stderr)
        return 2
    if jax.default_backend() != "gpu":
        print('JAX sees no GPU here: pip install "jax[cuda13]"', file=sys.stderr)
        return 2

    torch.set_float32_matmul_precision("high")  # TF32, which JAX uses by default
    gc.disable()  # if it destroyed an older graph during a capture, the capture would fail
    with tempfile.TemporaryDirectory() as cache:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = cache  # so that compiling begins from nothing
        with torch.cuda.stream(torch.cuda.Stream()):
            publish(report(JaxPPO, jax.__version__), "agent-")
    return 0


if __name__ == "__main__":
    sys.exit(main())
