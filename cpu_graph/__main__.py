"""python -m cpu_graph run script.py ...: run a program on the stand-in, and report."""

import argparse
import runpy
import sys
import traceback
from pathlib import Path

from cpu_graph import cpu_graphs
from cpu_graph.report import Report


def main(arguments: list[str] | None = None) -> int:
    """The status of the program; 1 if it is 0 and something can make its results wrong."""
    parser = argparse.ArgumentParser(prog="python -m cpu_graph", description=__doc__)
    parser.add_argument("command", choices=["run"])
    parser.add_argument("script", help="a program that uses torch.cuda")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="the program's own")
    given = parser.parse_args(arguments)
    if not Path(given.script).is_file():
        parser.error(f"{given.script} is not a file.")
    sys.argv = [given.script, *given.arguments]
    sys.path[0] = str(Path(given.script).resolve().parent)
    with cpu_graphs() as device:
        status = run(given.script)
        report = Report.of(device)
    print(f"\n{report}", file=sys.stderr)
    return status or int(bool(report.findings))


def run(script: str) -> int:
    """Run a script as Python would; returns the status that it ends with."""
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
    except BaseException as error:
        print_user_traceback(traceback.TracebackException.from_exception(error))
        return 130 if isinstance(error, KeyboardInterrupt) else 1
    finally:
        sys.stdout.flush()
    return 0


def print_user_traceback(error: traceback.TracebackException) -> None:
    """Print a traceback without the frames of the stand-in and of runpy."""
    ours = str(Path(__file__).parent), runpy.__file__, "<frozen runpy>"
    chain: list[traceback.TracebackException | None] = [error]
    for each in chain:
        if each is not None:
            kept = [frame for frame in each.stack if not frame.filename.startswith(ours)]
            each.stack = traceback.StackSummary.from_list(kept)
            chain += [each.__cause__, each.__context__]
    print("".join(error.format()), end="", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
