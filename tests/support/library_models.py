"""Models of other libraries, for tests that read them."""

import importlib.util
import re
import sys
from pathlib import Path
from unittest.mock import patch

import pytest
import torch

DECLARED = torch.library.Library("torchvision", "FRAGMENT")


def models_of(package):
    """A package of models, or the test is skipped.

    torchvision's, which transformers imports as well, are plain Python. Its compiled extension once
    took a test's process with it as it was loaded, and no model here needs it: it stays out, and
    the operators that Python expects of it are declared.
    """
    with patch.object(torch.ops, "load_library", side_effect=OSError("not needed")):
        try:
            importlib.import_module("torchvision")
        except ModuleNotFoundError:
            pass
        except RuntimeError:  # it registers what its extension would have defined
            _declare_operators()
            importlib.import_module("torchvision")
        return pytest.importorskip(package)


def _declare_operators():
    package = Path(importlib.util.find_spec("torchvision").origin)
    source = package.with_name("_meta_registrations.py").read_text()
    for missing in re.findall(r"register_fake\(\"torchvision::(\w+)", source):
        DECLARED.define(f"{missing}(Tensor boxes, Tensor scores, float threshold) -> Tensor")
    for name in [name for name in sys.modules if name.startswith("torchvision")]:
        del sys.modules[name]
