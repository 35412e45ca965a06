"""What of the project counts for a recording: what runs on the GPU, or decides what runs there.

Definitions count each by itself (reached_code). The tools count as a whole: where one differs, a
cell plays and says so. What only frees, reads, reports or draws is left out; what it makes of the
recorded traces is made anew, and compared, by the tests.
"""

from collections.abc import Iterable

ROOMS = (
    "helpers",
    "course",
    "exercises",
    "capturable",
    "cpu_graph",
    "examples",
    "benchmarks",
    "trace_report",
)
TOOLS = (
    "capturable",  # these three check a reader's code
    "cpu_graph",
    "exercises.answers",
    "helpers.capture",  # the recipe of lesson 03, which its tests hold to eager training
)
LEFT_OUT = {  # a module, or a package with all that is in it: what it does
    "course.at_exit": "ends the process",
    "course.lesson": "says where traces are",
    "course.lessons": "finds a lesson's file",
    "course.memory": "frees the memory of what was measured",
    "course.paths": "says where files are",
    "course.recordings": "keeps what was measured",
    "helpers.charts": "draws",
    "helpers.ranks": "reads recorded traces",
    "helpers.spread": "reports",
    "helpers.trace": "reads recorded traces",
    "trace_report": "reads recorded traces, and reports",
}


def affects_recordings(module: str) -> bool:
    """Whether the definitions of a module, by its full name, count."""
    return not _enclosing_package(module, LEFT_OUT)


def tool_of_module(module: str) -> str:
    """The tool that a module is part of; "" if it is part of none."""
    return _enclosing_package(module, TOOLS)


def _enclosing_package(module: str, packages: Iterable[str]) -> str:
    """That of some modules and packages which a module is, or lies in; "" if there is none."""
    return next((one for one in packages if f"{module}.".startswith(f"{one}.")), "")
