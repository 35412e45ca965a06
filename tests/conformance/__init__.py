"""Small programs that must end on the stand-in as they end on a GPU.

A program takes nothing and returns a relation (True, False), whole numbers or texts, never a random
draw; or it fails, and the first lines of its chain of errors are what is compared. A race is widened by torch.cuda._sleep.
"""

from conformance.outcomes import PROGRAMS, outcome, outcomes, program, runs

__all__ = ["PROGRAMS", "outcome", "outcomes", "program", "runs"]
