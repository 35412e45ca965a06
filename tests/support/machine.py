"""What this machine has, and how long tests wait for it."""

import time

import pytest
import torch

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")

PATIENCE = 180  # seconds: no test depends on how fast the machine is, and none waits for ever


def wait_for(condition):
    """Poll condition until it gives something true, and return that."""
    end = time.monotonic() + PATIENCE
    while not (found := condition()):
        assert time.monotonic() < end, f"{condition.__name__} was not met in {PATIENCE} s"
        time.sleep(0.2)
    return found
