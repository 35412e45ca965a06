"""A pytest plugin: tests of code that captures CUDA graphs, on a CPU and on a GPU where there is
one.

    def test_on_the_stand_in(cpu_graphs):
        ...                                # torch.cuda works on CPU tensors in this test

    @pytest.mark.cuda_graphs
    def test_on_both():
        ...                                # once on the stand-in, and once on a GPU if there is one

    pytest --cpu-graphs                    # all tests on the stand-in, as they are

With the option, or `cpu_graphs = true` among pytest's settings, the block is open before the first
module is imported: `from torch.cuda import Stream` at its top, `skipif(not
torch.cuda.is_available())`, unittest's classes and fixtures of any scope find the stand-in.

What the stand-in has noticed (``hints``) is shown with a test that fails. torch is not imported
before a test asks for it, or the option.
"""

from contextlib import ExitStack

import pytest

STAND_IN = "_cuda_graphs"
NOTICED = pytest.StashKey()
BLOCK = pytest.StashKey()  # of the whole run: its device, and what closes it


def pytest_addoption(parser):
    parser.addoption(
        "--cpu-graphs", action="store_true", help="run all tests on the stand-in for CUDA graphs"
    )
    parser.addini("cpu_graphs", "run all tests on the stand-in for CUDA graphs", "bool", False)


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config):
    if early_config.known_args_namespace.cpu_graphs or early_config.getini("cpu_graphs"):
        import cpu_graph

        stack = ExitStack()
        early_config.stash[BLOCK] = stack.enter_context(cpu_graph.cpu_graphs()), stack


def pytest_configure(config):
    config.addinivalue_line(
        "markers", "cuda_graphs: run on the stand-in for CUDA graphs, and on a GPU if there is one"
    )


def pytest_unconfigure(config):
    _, stack = config.stash.get(BLOCK, (None, ExitStack()))
    stack.close()


@pytest.fixture
def cpu_graphs(request):
    """torch's CUDA names work on CPU tensors in this test; the value is the stand-in's device."""
    device, _ = request.config.stash.get(BLOCK, (None, None))
    if device:
        yield device
        return
    import cpu_graph

    with cpu_graph.cpu_graphs() as device:
        request.node.stash[NOTICED] = device
        yield device


def pytest_generate_tests(metafunc):
    if metafunc.definition.get_closest_marker("cuda_graphs"):
        import torch

        real = torch.cuda.is_available() and BLOCK not in metafunc.config.stash
        places = ["stand-in", "gpu"] if real else ["stand-in"]
        metafunc.parametrize(STAND_IN, places, indirect=True)


@pytest.fixture(autouse=True)  # before the fixtures that make tensors
def _cuda_graphs(request):
    device, _ = request.config.stash.get(BLOCK, (None, None))
    if device:
        device.findings, device.captures = [], []
        request.node.stash[NOTICED] = device
        yield device
        device.capture = None
        device.stream = 0  # a failed capture may leave its own
        return
    # a method of unittest's cannot run twice
    alone = not hasattr(request, "param") and request.node.get_closest_marker("cuda_graphs")
    if alone or getattr(request, "param", None) == "stand-in":
        yield request.getfixturevalue("cpu_graphs")
        return
    if not hasattr(request, "param"):
        yield None
        return
    import torch

    stream = torch.cuda.current_stream()
    yield None
    torch.cuda.set_stream(stream)  # a failed capture may leave its own
    torch.cuda.synchronize()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item):
    report = yield
    device = item.stash.get(NOTICED, None)
    if report.failed and device:
        from cpu_graph.report import Report

        text = str(Report.of(device))
        report.sections.append(("what the stand-in for CUDA graphs noticed", text))
    return report
