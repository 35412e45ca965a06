"""capturable check train.py:make_step      what a CUDA graph capture would refuse or freeze
capturable explain "<message>"           what a message of CUDA graphs means
capturable rules                         what check looks for, and why

FILE:FUNCTION or MODULE:FUNCTION names a function without arguments. It returns the step, or (step,
inputs), or (step, inputs, other_inputs): a tuple of arguments, or a dict of keyword arguments. What
stands behind -- are the script's own arguments. Exit status of check: 0 nothing found but notes, 1
faults, 2 it could not be checked.
"""

import argparse
import platform
import sys
import traceback
import warnings
from contextlib import nullcontext, redirect_stdout
from importlib import import_module
from pathlib import Path
from typing import Any

from capturable import __version__, explain, rules
from capturable.load_step import LoadError, guarded, load

FIXED = ("cpu", "cuda")


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
        return _check(options, scripts)
    except LoadError as error:
        print(f"capturable check: {error}", file=sys.stderr)
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
    parser.add_argument("--version", action=_Version)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser(
        "explain", help="explain a message, or a log on standard input", add_help=False
    )
    commands.add_parser("rules", help="print the rules as Markdown")
    check = commands.add_parser("check", help="preflight a step")
    check.add_argument("step", metavar="FILE:FUNCTION", help="a function that makes the step")
    check.add_argument("--device", help="what counts as the GPU: cuda, or cpu where there is none")
    check.add_argument(
        "--warmup", type=int, metavar="N", help="run the step N times before it is judged"
    )
    check.add_argument(
        "--verify", action="store_true", help="ask a real capture as well; needs a GPU"
    )
    check.add_argument(
        "--package", action="append", metavar="FOLDER", help="where your own code is"
    )
    check.add_argument(
        "--baseline", type=Path, metavar="FILE", help="leave out what this file holds"
    )
    check.add_argument(
        "--write-baseline", type=Path, metavar="FILE", help="accept what is found now"
    )
    check.add_argument("--json", action="store_true", help="print a JSON object")
    check.add_argument("--github", action="store_true", help="print annotations for GitHub Actions")
    check.add_argument("--traceback", action="store_true", help="show the traceback of what failed")
    return parser


class _Version(argparse.Action):
    """Prints versions; imports torch only then."""

    def __init__(self, option_strings: list[str], dest: str, **options: Any) -> None:
        super().__init__(option_strings, dest, nargs=0, help="print the versions and exit")

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        torch = import_module("torch").__version__
        print(f"capturable {__version__}, torch {torch}, Python {platform.python_version()}")
        parser.exit()


def _check(options: argparse.Namespace, scripts: list[str]) -> int:
    target = options.step.rpartition(":")[0]
    if target.endswith(".py") and not Path(target).is_file():
        raise LoadError(f"there is no file {target}: FILE:FUNCTION names one")
    device = _device(options)
    from capturable import accepted, user_lines
    from capturable.cpu_as_gpu import capturable_optimizers

    user_lines.only(options.package or ())
    on_cpu = capturable_optimizers() if device == "cpu" else nullcontext()
    with redirect_stdout(sys.stderr), on_cpu:  # what the script itself prints
        made = load(options.step, scripts)
        findings = guarded("the step", _preflight, made, device, options)
    if options.baseline:
        findings = guarded("--baseline", accepted.without_known, findings, options.baseline)
    if options.write_baseline:
        guarded("--write-baseline", options.write_baseline.write_text, accepted.baseline(findings))
    print(findings.json() if options.json else findings.github() if options.github else findings)
    return 1 if findings.faults and not options.write_baseline else 0


def _device(options: argparse.Namespace) -> str:
    """The device type that counts as the GPU."""
    available = import_module("torch").cuda.is_available()
    device = options.device or ("cuda" if available else "cpu")
    if device not in FIXED:
        raise LoadError(f"--device is one of {', '.join(FIXED)}, not {device}")
    if device == "cuda" and not available:
        raise LoadError(
            "there is no CUDA GPU here: leave --device away, and the CPU takes its place"
        )
    if options.verify and device != "cuda":
        raise LoadError("--verify asks a real capture, which needs a CUDA GPU")
    return device


def _preflight(made: Any, device: str, options: argparse.Namespace) -> Any:
    from capturable.preflight import preflight

    return preflight(
        made.step,
        *made.inputs,
        kwargs=made.kwargs,
        other_inputs=made.other_inputs,
        other_kwargs=made.other_kwargs,
        device=device,
        verify=options.verify,
        warmup=options.warmup,
    )


if __name__ == "__main__":
    sys.exit(main())
