"""Find what a CUDA graph capture would refuse or freeze, and explain what it said. Needs torch alone.

capturable.preflight looks at a step before its capture, capturable.watch at a step of somebody else's
loop; capturable.explain needs not even torch.
"""

from importlib import import_module

LAZY = {"preflight": "steps", "watch": "loops", "Finding": "findings", "Findings": "findings"}


def __getattr__(name: str):
    """Import torch only when something is asked for that needs it."""
    if name in LAZY:
        return getattr(import_module(f"capturable.{LAZY[name]}"), name)
    raise AttributeError(f"module 'capturable' has no attribute {name!r}")
