"""Small programs that must end on the stand-in as they end on a GPU.

A program takes nothing and returns a relation (True, False), whole numbers or texts, never a random
draw; or it fails, and the first lines of its chain of errors are what is compared. A race is
widened by torch.cuda._sleep. `python -m tests.cpu_graph.conformance` on a GPU records how they
end there, in traces/<gpu>/conformance.json.
"""

import pkgutil
from importlib import import_module

from tests.cpu_graph.conformance.outcomes import PROGRAMS, outcome

__all__ = ["PROGRAMS", "outcome"]
for module in pkgutil.iter_modules(__path__, f"{__name__}."):
    if not module.name.endswith("__main__"):
        import_module(module.name)
