"""Find what a CUDA graph capture would refuse or freeze, and explain what it said. Needs torch alone."""

from capturable.preflight import preflight as preflight
