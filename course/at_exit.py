"""A process that has loaded triton ends without its bindings' list of what was not collected."""

import atexit
import gc
import sys


def _unfreeze() -> None:
    if "triton" in sys.modules:  # it lists thirty lines of what was frozen
        gc.unfreeze()


atexit.register(_unfreeze)  # before the package registers gc.freeze, so it runs after that
