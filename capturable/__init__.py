"""Find what a CUDA graph capture would refuse or freeze, and explain what it said. Needs torch alone.

To be called       steps: preflight, before a capture; loops: watch, for somebody else's loop; __main__: the commands
What runs          operators, listening, streams, bookkeeping log it; lines and alive say where, and what it is called
What is found      check calls the rules, with their fixes, and the differences between two runs; findings shows them
Putting back       undo, of all that is in reach, and of the memory
A real capture     truth asks one; captures tries it and finds the line
Messages           explain says what one means, from the causes, or by its likeness to one; it needs not even torch
"""

from importlib import import_module

LAZY = {"preflight": "steps", "watch": "loops", "Finding": "findings", "Findings": "findings"}


def __getattr__(name: str):
    """Import torch only when something is asked for that needs it."""
    if name in LAZY:
        return getattr(import_module(f"capturable.{LAZY[name]}"), name)
    raise AttributeError(f"module 'capturable' has no attribute {name!r}")
