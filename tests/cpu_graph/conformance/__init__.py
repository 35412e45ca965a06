"""Small programs that must end on the stand-in as they end on a GPU.

A program takes nothing and returns a relation (True, False), whole numbers or texts, never a random
draw; or it fails, and the first lines of its chain of errors are what is compared. A race is
widened by torch.cuda._sleep. `python -m tests.cpu_graph.conformance` on a GPU records how they
end there, in traces/<gpu>/conformance.json.
"""

from tests.cpu_graph.conformance import (
    addresses,
    callbacks,
    checks,
    expressions,
    formats,
    graphed,
    host,
    networks,
    objects,
    own_operators,
    places,
    pools,
    random_numbers,
    streams,
    training,
    types,
    values,
)
from tests.cpu_graph.conformance.outcomes import PROGRAMS, outcome

__all__ = ["PROGRAMS", "outcome"]
MODULES = addresses, graphed, host, pools, random_numbers, streams, training, values
MODULES += checks, expressions, networks
MODULES += callbacks, formats, objects, own_operators, places, types
