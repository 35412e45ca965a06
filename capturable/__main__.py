"""capturable check train.py:make_step ...  what a CUDA graph capture would refuse or freeze
capturable compare eager.py:make graphed.py:make   whether a step with graphs does what eager does
capturable explain "<message>"           what a message of CUDA graphs means
capturable rules                         what check looks for, and why

FILE:FUNCTION or MODULE:FUNCTION names a function without arguments. It returns the step, or (step,
inputs), or (step, inputs, other_inputs): a tuple of arguments, or a dict of keyword arguments. What
follows -- are the script's own arguments. Exit status of check: 0 nothing found but notes, 1
faults, 2 the step could not be checked.
"""

import argparse
import platform
import sys
import traceback
import warnings
from contextlib import nullcontext, redirect_stdout
from functools import partial
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

from capturable import __version__, explain, rules
from capturable.load_step import (
    LoadedStep,
    LoadError,
    asks_for_a_gpu,
    call_or_load_error,
    load,
    load_function,
)

STAND_IN = "stand-in"
FLAG: dict[str, Any] = {"action": "store_true"}
OPTIONS: dict[str, dict[str, dict[str, Any]]] = {  # of the commands that run steps
    "check": {
        "step": {"metavar": "FILE:FUNCTION", "help": "a function that makes a step"},
        "--device": {
            "choices": ("cpu", "cuda"),
            "help": "what counts as the GPU: cuda, or cpu where there is none",
        },
        "--warmup": {
            "type": int,
            "metavar": "N",
            "help": "run the step N times before it is judged",
        },
        "--verify": FLAG | {"help": "ask a real capture as well; needs a GPU"},
        "--json": FLAG | {"help": "print a JSON object"},
    },
    "compare": {
        "eager": {"metavar": "EAGER", "help": "FILE:FUNCTION that makes the eager step"},
        "graphed": {"metavar": "GRAPHED", "help": "FILE:FUNCTION that makes the step with graphs"},
        "--calls": {"type": int, "default": 12, "metavar": "N", "help": "call each step N times"},
        "--pad": {
            "action": "append",
            "default": [],
            "metavar": "TENSOR[ROWS]",
            "help": "a tensor of the step with graphs that it pads: static_x, or static_x[5:]",
        },
        "--read-at-once": FLAG | {"help": "a result may be overwritten by a later call"},
        "--rtol": {"type": float, "default": 1e-4, "help": "how far numbers may be apart"},
        "--seed": {
            "type": int,
            "default": 0,
            "help": "of the random states and the shuffled inputs",
        },
    },
}


def main(arguments: list[str] | None = None) -> int:
    """Run a command; return its exit status."""
    with warnings.catch_warnings():  # torch says so at its import, and nothing here needs numpy
        warnings.filterwarnings("ignore", message="Failed to initialize NumPy")
        return _run_command(sys.argv[1:] if arguments is None else arguments)


def _run_command(arguments: list[str]) -> int:
    if arguments[:1] == ["explain"]:
        return explain.main(arguments[1:], "capturable explain")
    at = arguments.index("--") if "--" in arguments else len(arguments)
    options = _parser().parse_args(arguments[:at])
    if options.command == "rules":
        print(rules.markdown(), end="")
        return 0
    try:
        return (_check if options.command == "check" else _compare)(options, arguments[at + 1 :])
    except LoadError as error:
        print(f"capturable {options.command}: {error}", file=sys.stderr)
        if options.traceback and error.cause is not None:
            traceback.print_exception(error.cause)
        return 2


def _parser() -> argparse.ArgumentParser:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="capturable", description=__doc__, formatter_class=form)
    versions = f"torch {version('torch')}, Python {platform.python_version()}"
    about = f"capturable {__version__}, {versions}"
    parser.add_argument("--version", action="version", version=about)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser(
        "explain", help="explain a message, or a log on standard input", add_help=False
    )
    commands.add_parser("rules", help="print the rules as Markdown")
    helps = {"check": "preflight a step", "compare": "compare a step with graphs to the eager step"}
    for name, settings in OPTIONS.items():
        command = commands.add_parser(name, help=helps[name])
        for flag, setting in settings.items():
            command.add_argument(flag, **setting)
        command.add_argument("--traceback", **FLAG, help="show the traceback of what failed")
    return parser


def _compare(options: argparse.Namespace, scripts: list[str]) -> int:
    """Print how the two steps compare; 0 if they are equal, 1 if not."""
    from capturable.compare import compare
    from capturable.step_state import seed_all

    def make(target: str) -> Any:
        function = load_function(target, scripts)  # a script's own tensors are new each time
        seed_all(options.seed)  # a script may seed, or draw, and is not run again by an import
        return function()

    with redirect_stdout(sys.stderr):  # what the scripts print
        comparison = call_or_load_error(
            "compare",
            compare,
            partial(make, options.eager),
            partial(make, options.graphed),
            calls=options.calls,
            pad=options.pad,
            read_at_once=options.read_at_once,
            rtol=options.rtol,
            seed=options.seed,
        )
    print(comparison)
    return 0 if comparison.equal else 1


def _check(options: argparse.Namespace, scripts: list[str]) -> int:
    """Print what preflight finds in the step; 0 if there are no faults, 1 if there are."""
    device = _device(options)
    with redirect_stdout(sys.stderr):  # what the script itself prints
        findings = _findings(options, scripts, device)
    print(findings.json() if options.json else findings)
    return 1 if findings.faults else 0


def _findings(options: argparse.Namespace, scripts: list[str], device: str) -> Any:
    """What preflight finds in the step."""
    from capturable.cpu_as_gpu import capturable_optimizers

    if device == STAND_IN:
        findings = _run_on_stand_in(options, scripts)
        if findings is not None:
            return findings
        device = "cpu"
    with capturable_optimizers() if device == "cpu" else nullcontext():
        try:
            made = load(options.step, scripts)
            return _run_preflight(made, device, options)
        except LoadError as error:
            if options.device or not asks_for_a_gpu(error) or not has_stand_in():
                raise
    return _run_on_stand_in(options, scripts, always=True)


def _run_on_stand_in(options: argparse.Namespace, scripts: list[str], always: bool = False) -> Any:
    """What preflight finds on the stand-in; None for a step that makes nothing on a GPU."""
    from capturable.graphs_inside import disable_torch_compile
    from capturable.stand_in import gpu_or_stand_in

    with gpu_or_stand_in() as device, disable_torch_compile():
        made = load(options.step, scripts)
        if always or device.launches:
            return _run_preflight(made, "cuda", options)
    return None


def _run_preflight(made: LoadedStep, device: str, options: argparse.Namespace) -> Any:
    settings = {"verify": options.verify or None, "warmup": options.warmup}
    return call_or_load_error("the step", made.preflight, device=device, **settings)


def _device(options: argparse.Namespace) -> str:
    """The device type that counts as the GPU."""
    available = import_module("torch").cuda.is_available()
    device = options.device or ("cuda" if available else STAND_IN if has_stand_in() else "cpu")
    if device == "cuda" and not available:
        raise LoadError(
            "there is no CUDA GPU here: leave --device away, and the CPU takes its place"
        )
    if options.verify and device == "cpu":
        raise LoadError("--verify asks a real capture, which needs a CUDA GPU")
    return device


def has_stand_in() -> bool:
    """Whether the stand-in for CUDA graphs is installed."""
    return find_spec("cpu_graph") is not None


if __name__ == "__main__":
    sys.exit(main())
