"""Find what a CUDA graph capture would refuse or freeze, and explain what it said.

Needs torch alone. The modules:

- called by users: preflight, before a capture; compare, after it; testing, for pytest; watch, for
  somebody else's loop; __main__, the commands, for which load_step finds the steps
- what runs: operators, host_calls, streams and python_state log it; inputs says how two batches
  differ; user_lines and live_objects say where it is; cpu_as_gpu knows what a CPU does otherwise
- what is found: check asks judge which of the rules is broken (waiting_operators: a table of
  waits), differences what changed between two runs, graphs_inside what replays graphs of its own,
  changed_values what code outside of the step changes; findings shows it, ignored_findings leaves
  out what somebody has accepted
- two steps: compare calls them with comparison_inputs, on a GPU or the stand_in; step_state says
  what a step keeps, value_differences where it differs, likely_causes why
- putting back: restore, all that is in reach and the memory of tensors
- a real capture: real_capture asks one; capture_attempt tries it and finds the line
- messages: explain says what one means, from the causes, or by similar_causes; it needs not
  even torch
- the package: setup builds it
"""

import sys
from importlib import import_module
from types import ModuleType

__version__ = "0.2.0"
PUBLIC = {  # the name, and the module that holds it
    "preflight": "preflight",
    "compare": "compare",
    "watch": "watch",
    "assert_capturable": "testing",
    "Finding": "findings",
    "Findings": "findings",
}


class _Package(ModuleType):
    """The package, in which preflight, compare and watch are functions and not their modules."""

    def __getattr__(self, name: str) -> object:
        """Import torch only when something is asked for that needs it."""
        if name not in PUBLIC:
            raise AttributeError(f"module 'capturable' has no attribute {name!r}")
        return getattr(import_module(f"capturable.{PUBLIC[name]}"), name)

    def __setattr__(self, name: str, value: object) -> None:
        """Python binds a submodule to its package when it is imported."""
        if name in PUBLIC and isinstance(value, ModuleType):
            value = getattr(value, name)
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
