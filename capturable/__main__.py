"""python -m capturable check train.py:make_step      what a CUDA graph capture would refuse or freeze
python -m capturable explain "<message>"           what a message of CUDA graphs means

make_step() returns the step, or (step, inputs), or (step, inputs, other_inputs): tuples of arguments.
Exit status of check: 0 nothing found but notes, 1 faults, 2 it could not be checked.
"""

import argparse
import importlib.util
import sys
import traceback
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path

from capturable import explain


def main(arguments: list[str] | None = None) -> int:
    """Run a command; return its exit status."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments[:1] == ["explain"]:
        return explain.main(arguments[1:])
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="python -m capturable", description=__doc__, formatter_class=form)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("explain", help="explain a message, or a log on standard input", add_help=False)
    check = commands.add_parser("check", help="preflight a step")
    check.add_argument("step", metavar="FILE:FUNCTION", help="a function that makes the step")
    check.add_argument("--device", help="what counts as the GPU: cuda, or cpu where there is none")
    check.add_argument("--verify", action="store_true", help="ask a real capture as well; needs a GPU")
    check.add_argument("--json", action="store_true", help="print a list of objects")
    check.add_argument("--github", action="store_true", help="print annotations for GitHub Actions")
    return _check(parser.parse_args(arguments))


def _check(options: argparse.Namespace) -> int:
    from capturable import preflight

    try:
        with redirect_stdout(sys.stderr):  # what the script itself prints
            step, inputs, others = _made(_load(options.step)())
            findings = preflight(step, *inputs, other_inputs=others, device=options.device, verify=options.verify)
    except _Usage as error:
        print(f"python -m capturable check: {error}", file=sys.stderr)
        return 2
    except Exception:  # the step's own error
        traceback.print_exc()
        return 2
    print(findings.json() if options.json else findings.github() if options.github else findings)
    return 1 if findings.faults else 0


class _Usage(Exception):
    """The command line names no step."""


def _load(target: str) -> Callable:
    """The function that FILE:FUNCTION names."""
    file, _, name = target.rpartition(":")
    path = Path(file).resolve()
    if not file or not path.is_file():
        raise _Usage(f"{target!r} is not FILE:FUNCTION with a file that is there")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise _Usage(f"{file} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    sys.path.insert(0, str(path.parent))
    spec.loader.exec_module(module)
    if not callable(getattr(module, name, None)):
        raise _Usage(f"{file} has no function {name}")
    return getattr(module, name)


def _made(made: object) -> tuple:
    """(step, inputs, other inputs or None) of what make_step returned."""
    if callable(made):
        return made, (), None
    if not (isinstance(made, tuple) and 1 <= len(made) <= 3 and callable(made[0])):
        raise _Usage("the function returns neither a step nor (step, inputs) nor (step, inputs, other_inputs)")
    step, inputs, others = (*made, (), None)[:3] if len(made) == 1 else (*made, None)[:3]
    if not all(isinstance(group, tuple | list) for group in (inputs, others or ())):
        raise _Usage("inputs and other_inputs are tuples of the step's arguments")
    return step, tuple(inputs), others


if __name__ == "__main__":
    sys.exit(main())
