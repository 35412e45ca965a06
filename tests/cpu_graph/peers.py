"""Run other projects' own tests of CUDA graphs on the stand-in, from a checkout of the project.

`python -m tests.cpu_graph.peers pytorch <path of the checkout>` prints how each test ends: it
passes, is refused by name, is wrong, or cannot run here because it calls the driver itself, starts
a process or lacks a package. What a project imports has to be installed.
"""

import importlib
import importlib.abc
import importlib.machinery
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import NamedTuple
from unittest.mock import MagicMock, patch

import pytest
import torch


class Peer(NamedTuple):
    """Where a project's tests are (file, or folder), and what they need beforehand."""

    file: str
    chosen: str = ""
    paths: tuple = (".",)
    absent: tuple = ()  # modules that are imported and not used by these tests
    first: tuple = ()  # modules that ask for a device's properties when they are imported
    flags: tuple = ()  # of the last of them, which it has found to be False by then
    prepare: Callable = lambda stack: None  # what of it is not built, or asks for the driver


def weak_ref_tensor(x):
    """A tensor on the same memory: vLLM and SGLang have it in C++, which is not built."""
    return x.data


def prepare_vllm(stack):
    platforms = importlib.import_module("vllm.platforms")
    cuda = importlib.import_module("vllm.platforms.cuda")
    platforms._current_platform = cuda.NonNvmlCudaPlatform()
    library = stack.enter_context(torch.library._scoped_library("_C", "FRAGMENT"))
    library.define("weak_ref_tensor(Tensor(a) x) -> Tensor(a)")
    library.impl("weak_ref_tensor", weak_ref_tensor, "CompositeImplicitAutograd")


def prepare_sglang(stack):
    kernels = ModuleType("sgl_kernel")
    kernels.weak_ref_tensor = weak_ref_tensor
    stack.enter_context(patch.dict(sys.modules, sgl_kernel=kernels))


VLLM_ABSENT = (
    "openai",
    "openai_harmony",
    "pybase64",
    "uvloop",
    "xgrammar",
    "vllm._C_stable_libtorch",
)
SGLANG_ABSENT = (
    "sglang.test.run_eval",
    "sglang.benchmark",
    "sglang.srt.configs",
    "datasets",
    "openai",
    "starlette",
    "pybase64",
)
PEERS = {
    "pytorch": Peer(
        "test/test_cuda.py",
        "graph and not memory_stats_of",
        first=(
            "torch.testing._internal.common_cuda",
            "torch.testing._internal.common_device_type",
            "torch.testing._internal.common_utils",
        ),
        flags=("TEST_CUDA", "TEST_CUDA_GRAPH"),
    ),
    "tensordict": Peer("test/compile/test_compile.py", "TestCudaGraphs", ("test",)),
    "vllm": Peer(
        "tests/v1/cudagraph/test_breakable_cudagraph.py", absent=VLLM_ABSENT, prepare=prepare_vllm
    ),
    "sglang": Peer(
        "test/registered/cuda_graph/breakable/test_breakable_cuda_graph.py",
        "Basic or CopyOutput or BreakGraphHelper",
        ("python",),
        SGLANG_ABSENT,
        prepare=prepare_sglang,
    ),
    "torchtitan": Peer(
        str(Path(__file__).with_name("peer_torchtitan.py")),
        absent=("spmd_types", "tyro", "torchtitan.distributed.parallel_dims"),
    ),
}


PROPERTIES = SimpleNamespace(name="H200", total_memory=2**37, major=9, minor=0, gcnArchName="")


def answer_for_the_device(stack):
    """What suites ask of the device when they are imported, which the stand-in does not know."""
    for name, value in (("get_device_properties", PROPERTIES), ("get_device_capability", (9, 0))):
        stack.enter_context(patch.object(torch.cuda, name, lambda *_, value=value: value))


# a package is missing, or the test starts a process in which there is no stand-in
OF_THE_MACHINE = ModuleNotFoundError, subprocess.CalledProcessError


class Absent(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds packages that are imported and not used: what they hold is a mock."""

    def __init__(self, packages):
        self.packages = packages

    def find_spec(self, name, path=None, target=None):
        if any(f"{name}.".startswith(f"{package}.") for package in self.packages):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        return type("Mocked", (ModuleType,), {"__getattr__": mocked})(spec.name)

    def exec_module(self, module):
        module.__path__ = []


def mocked(module, name):
    if name.startswith("__"):
        raise AttributeError(name)
    return type(name, (), {}) if name[0].isupper() else MagicMock()


class Endings:
    """A plugin of pytest that keeps how each test ends."""

    def __init__(self, device):
        self.device = device
        self.found = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item, call):
        report = yield
        if item.name not in self.found and (report.when == "call" or report.outcome != "passed"):
            how, why = self.found[item.name] = ending(report, call)
            print(f"\n{how:16} {item.name}  {why[:160]}", flush=True)
        return report

    def pytest_runtest_teardown(self):
        self.device.capture = None
        self.device.stream = 0


def ending(report, call):
    """How a test ends, and why if it does not pass."""
    error = call.excinfo and call.excinfo.value
    while error is not None:
        if type(error).__name__ in ("NotModelled", "MissingAttribute"):
            return "refused by name", str(error).splitlines()[0]
        if isinstance(error, OF_THE_MACHINE) or "CUDA driver version" in str(error):
            return "not here", f"{type(error).__name__}: {error}".splitlines()[0]
        error = error.__cause__ or error.__context__
    if report.passed or hasattr(report, "wasxfail"):
        return "passes", ""
    error = call.excinfo.value
    said = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
    return ("skipped" if report.skipped else "wrong"), said


def main() -> None:
    """Print how the tests of a project end."""
    peer, checkout = PEERS[sys.argv[1]], Path(sys.argv[2]).resolve()
    sys.path[:0] = [str(checkout / path) for path in peer.paths]
    sys.meta_path.insert(0, Absent(peer.absent))
    for name in peer.first:
        module = importlib.import_module(name)
    for flag in peer.flags:
        setattr(module, flag, True)
    if peer.flags:  # tests that are made for each device, which are chosen at the import too
        made_for = importlib.import_module("torch.testing._internal.common_device_type")
        made_for.device_type_test_bases[:] = [made_for.CUDATestBase]
    from cpu_graph import cpu_graphs

    with ExitStack() as stack:
        endings = Endings(stack.enter_context(cpu_graphs()))
        answer_for_the_device(stack)
        peer.prepare(stack)
        options = ["-q", "-s", "-p", "no:cacheprovider", "--noconftest", "--import-mode=importlib"]
        options += [
            "--rootdir",
            str(checkout),
            "-c",
            os.devnull,
            "-o",
            "addopts=",
            "-k",
            peer.chosen,
            *sys.argv[3:],
        ]
        pytest.main([*options, str(checkout / peer.file)], plugins=[endings])
    print(dict(Counter(how for how, _ in endings.found.values())))


if __name__ == "__main__":
    main()
