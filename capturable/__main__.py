"""capturable check train.py:make_step ...  what a CUDA graph capture would refuse or freeze
capturable compare eager.py:make graphed.py:make   whether a step with graphs does what eager does
capturable explain "<message>"           what a message of CUDA graphs means
capturable rules                         what check looks for, and why

FILE:FUNCTION or MODULE:FUNCTION names a function without arguments. It returns the step, or (step,
inputs), or (step, inputs, other_inputs): a tuple of arguments, or a dict of keyword arguments. What
stands behind -- are the script's own arguments. Without a step, check takes those of the table
[tool.capturable] in pyproject.toml. Exit status of check: 0 nothing found but notes, 1 faults, 2 a
step could not be checked.
"""

import argparse
import json
import platform
import sys
import tomllib
import traceback
import warnings
from contextlib import nullcontext, redirect_stdout
from functools import partial
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from capturable import __version__, explain, rules
from capturable.load_step import LoadError, asks_for_a_gpu, guarded, load, load_function

FIXED = ("cpu", "cuda")
STAND_IN = "stand-in"
PROJECT = Path("pyproject.toml")
TABLE = ("steps", "packages", "select", "ignore")


def _names(text: str) -> list[str]:
    return [name for name in text.split(",") if name.strip()]


FLAG = {"action": "store_true"}
NAMES = {"type": _names, "metavar": "RULES"}
FOLDER = {"action": "append", "dest": "packages", "metavar": "FOLDER"}
OPTIONS: dict[str, dict[str, Any]] = {  # of check
    "steps": {"nargs": "*", "metavar": "FILE:FUNCTION", "help": "a function that makes a step"},
    "--device": {"help": "what counts as the GPU: cuda, or cpu where there is none"},
    "--warmup": {"type": int, "metavar": "N", "help": "run the step N times before it is judged"},
    "--verify": FLAG | {"help": "ask a real capture as well; needs a GPU"},
    "--package": FOLDER | {"help": "where your own code is"},
    "--select": NAMES | {"help": "report these rules alone"},
    "--ignore": NAMES | {"help": "leave these rules out"},
    "--json": FLAG | {"help": "print a JSON object"},
    "--traceback": FLAG | {"help": "show the traceback of what failed"},
}


COMPARED: dict[str, dict[str, Any]] = {  # options of compare
    "eager": {"metavar": "EAGER", "help": "FILE:FUNCTION that makes the eager step"},
    "graphed": {"metavar": "GRAPHED", "help": "FILE:FUNCTION that makes the step with graphs"},
    "--calls": {"type": int, "default": 12, "metavar": "N", "help": "call each step N times"},
    "--pad": {
        "action": "append",
        "default": [],
        "metavar": "TENSOR[ROWS]",
        "help": "a tensor of the step with graphs that it pads, such as static_x or static_x[5:]",
    },
    "--read-at-once": FLAG | {"help": "a result may be overwritten by a later call"},
    "--rtol": {"type": float, "default": 1e-4, "help": "how far numbers may be apart"},
    "--seed": {"type": int, "default": 0, "help": "of the random states and the shuffled inputs"},
    "--traceback": FLAG | {"help": "show the traceback of what failed"},
}


class Checked(NamedTuple):
    """A step by its target, and its findings; or the sentence that says why there are none."""

    step: str
    findings: Any
    error: str = ""


def main(arguments: list[str] | None = None) -> int:
    """Run a command; return its exit status."""
    with warnings.catch_warnings():  # torch says so at its import, and nothing here needs numpy
        warnings.filterwarnings("ignore", message="Failed to initialize NumPy")
        return _run(sys.argv[1:] if arguments is None else arguments)


def _run(arguments: list[str]) -> int:
    if arguments[:1] == ["explain"]:
        return explain.main(arguments[1:], "capturable explain")
    given, scripts = _split(arguments)
    options = _parser().parse_args(given)
    if options.command == "rules":
        print(rules.markdown(), end="")
        return 0
    try:
        return (_check if options.command == "check" else _compare)(options, scripts)
    except LoadError as error:
        return _failed(error, options)


def _failed(error: LoadError, options: argparse.Namespace, step: str = "") -> int:
    """Say what was not done, and return the status for it."""
    print(f"capturable {options.command}: {step}{error}", file=sys.stderr)
    if options.traceback and error.cause is not None:
        traceback.print_exception(error.cause)
    return 2


def _split(arguments: list[str]) -> tuple[list[str], list[str]]:
    """The arguments before and behind --."""
    at = arguments.index("--") if "--" in arguments else len(arguments)
    return arguments[:at], arguments[at + 1 :]


def _parser() -> argparse.ArgumentParser:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="capturable", description=__doc__, formatter_class=form)
    versions = f"torch {version('torch')}, Python {platform.python_version()}"
    parser.add_argument(
        "--version", action="version", version=f"capturable {__version__}, {versions}"
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser(
        "explain", help="explain a message, or a log on standard input", add_help=False
    )
    commands.add_parser("rules", help="print the rules as Markdown")
    check = commands.add_parser("check", help="preflight steps")
    for flag, settings in OPTIONS.items():
        check.add_argument(flag, **settings)
    compare = commands.add_parser("compare", help="compare a step with graphs to the eager step")
    for flag, settings in COMPARED.items():
        compare.add_argument(flag, **settings)
    return parser


def _compare(options: argparse.Namespace, scripts: list[str]) -> int:
    """Print how the two steps compare; 0 if they are equal, 1 if not."""
    from capturable.compare import compare

    def make(target: str) -> Any:
        return load_function(target, scripts, {})()  # a script's own tensors are new each time

    with redirect_stdout(sys.stderr):  # what the scripts print
        found = guarded(
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
    print(found)
    return 0 if found.equal else 1


def _check(options: argparse.Namespace, scripts: list[str]) -> int:
    _add_settings(options)
    for step in options.steps:
        file = step.rpartition(":")[0]
        if file.endswith(".py") and not Path(file).is_file():
            raise LoadError(f"there is no file {file}: FILE:FUNCTION names one")
    device = _device(options)
    from capturable import accepted, user_lines
    from capturable.findings import Findings

    user_lines.only(options.packages or ())
    guarded(
        "--select or --ignore", accepted.chosen, Findings(), options.select, options.ignore or ()
    )
    checked = _checked(options, scripts, device)
    _write(checked, options)
    if any(one.error for one in checked):
        return 2
    return 1 if any(one.findings.faults for one in checked) else 0


def _add_settings(options: argparse.Namespace) -> None:
    """Fill what the command line leaves open from [tool.capturable] in pyproject.toml."""
    table: dict[str, Any] = {}
    if PROJECT.is_file():
        project = guarded(str(PROJECT), tomllib.loads, PROJECT.read_text())
        table = project.get("tool", {}).get("capturable", {})
    for name, value in table.items():
        if name not in TABLE or not isinstance(value, list):
            known = ", ".join(TABLE)
            raise LoadError(f"{name} in [tool.capturable] is none of {known}, or no list")
        if not getattr(options, name):
            setattr(options, name, value)
    if not options.steps:
        raise LoadError("name a step as FILE:FUNCTION, or steps = [...] in [tool.capturable]")


def _checked(options: argparse.Namespace, scripts: list[str], device: str) -> list[Checked]:
    """Each step with its findings, or with the sentence that says why it was not checked."""
    from capturable import accepted
    from capturable.findings import Findings

    checked: list[Checked] = []
    loaded: dict[Path, ModuleType] = {}
    for step in options.steps:
        try:
            with redirect_stdout(sys.stderr):  # what the script itself prints
                found = _found(step, scripts, loaded, device, options)
        except LoadError as error:
            _failed(error, options, f"{step}: " if len(options.steps) > 1 else "")
            checked.append(Checked(step, Findings(), str(error)))
            continue
        found = accepted.chosen(found, options.select, options.ignore or ())
        checked.append(Checked(step, found))
    return checked


def _found(
    step: str,
    scripts: list[str],
    loaded: dict[Path, ModuleType],
    device: str,
    options: argparse.Namespace,
) -> Any:
    """What preflight finds in a step."""
    from capturable.cpu_as_gpu import capturable_optimizers

    if device == STAND_IN:
        found = _on_stand_in(step, scripts, options)
        if found is not None:
            return found
        device = "cpu"
    with capturable_optimizers() if device == "cpu" else nullcontext():
        try:
            made = load(step, scripts, loaded)
            return guarded("the step", _preflight, made, device, options)
        except LoadError as error:
            if options.device or not asks_for_a_gpu(error) or not stand_in_known():
                raise
    return _on_stand_in(step, scripts, options, always=True)


def _on_stand_in(
    step: str, scripts: list[str], options: argparse.Namespace, always: bool = False
) -> Any:
    """What preflight finds on the stand-in; None for a step that makes nothing on a GPU."""
    from capturable.graphs_inside import uncompiled
    from capturable.stand_in import gpu_or_stand_in

    with gpu_or_stand_in() as device, uncompiled():
        made = load(step, scripts, {})  # of this block: a script's tensors are new in the next
        if always or device.launches:
            return guarded("the step", _preflight, made, "cuda", options)
    return None


def _write(checked: list[Checked], options: argparse.Namespace) -> None:
    """Print the findings."""
    done = [one for one in checked if not one.error]
    if options.json and len(checked) > 1:
        steps = [{"step": one.step} | one.findings.as_dict() for one in done]
        print(json.dumps({"steps": steps}, indent=1))
    elif options.json:
        print(*(one.findings.json() for one in done))
    elif len(checked) > 1:
        print(*(f"{one.step}: {one.findings.listing}" for one in done), sep="\n\n", end="\n\n")
        reports = [one.findings.report for one in done if one.findings.report]
        for text in dict.fromkeys(warning for report in reports for warning in report.warnings):
            print(f"Warning: {text}.")
        faults = sum(bool(one.findings.faults) for one in done)
        print(
            f"{len(checked)} steps: {faults} with faults, {len(checked) - len(done)} not checked."
        )
        unseen = dict.fromkeys(what for report in reports for what in report.unseen())
        print(f"Not seen: {'; '.join(unseen)}.")
    elif done:
        print(done[0].findings)


def _device(options: argparse.Namespace) -> str:
    """The device type that counts as the GPU."""
    available = import_module("torch").cuda.is_available()
    device = options.device or ("cuda" if available else STAND_IN if stand_in_known() else "cpu")
    if device not in (*FIXED, STAND_IN):
        raise LoadError(f"--device is one of {', '.join(FIXED)}, not {device}")
    if device == "cuda" and not available:
        raise LoadError(
            "there is no CUDA GPU here: leave --device away, and the CPU takes its place"
        )
    if options.verify and device == "cpu":
        raise LoadError("--verify asks a real capture, which needs a CUDA GPU")
    return device


def stand_in_known() -> bool:
    """Whether the stand-in for CUDA graphs is installed."""
    return find_spec("cpu_graph") is not None


def _preflight(made: Any, device: str, options: argparse.Namespace) -> Any:
    from capturable.preflight import preflight

    return preflight(
        made.step,
        *made.inputs,
        kwargs=made.kwargs,
        other_inputs=made.other_inputs,
        other_kwargs=made.other_kwargs,
        device=device,
        verify=options.verify or None,
        warmup=options.warmup,
    )


if __name__ == "__main__":
    sys.exit(main())
