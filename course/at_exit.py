"""How a process that uses the course ends."""

import atexit
import gc
import sys


def _end() -> None:
    # torch's 200,000 objects are not looked through for garbage as the process ends: a kernel stops
    # 0.3 s sooner. With triton they are, also what others froze: its bindings list on thirty lines
    # what was not collected
    if "triton" in sys.modules:
        gc.unfreeze()
    else:
        gc.freeze()


atexit.register(_end)
