"""Find what a CUDA graph capture would refuse or freeze, and explain what it said. Needs torch alone.

preflight looks at a step before its capture, watch at steps of somebody else's loop: operators, listening,
streams and bookkeeping log what runs, rules judge it, undo puts everything back, and truth asks a real capture.
explain says what a message means, from the causes; it needs not even torch.
"""

from importlib import import_module

LAZY = {"preflight": "steps", "watch": "loops", "Finding": "findings", "Findings": "findings"}


def __getattr__(name: str):
    """Import torch only when something is asked for that needs it."""
    if name in LAZY:
        return getattr(import_module(f"capturable.{LAZY[name]}"), name)
    raise AttributeError(f"module 'capturable' has no attribute {name!r}")
