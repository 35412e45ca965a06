"""A pytest plugin: tests of code that captures CUDA
graphs, on a CPU and on a GPU where there is one.

    def test_on_the_stand_in(cpu_graphs):
        ...                                # torch.cuda works on CPU tensors in this test

    @pytest.mark.cuda_graphs
    def test_on_both():
        ...                                # once on the stand-in, and once on a GPU if there is one

What the stand-in has noticed (``hints``) is shown with a test that fails. torch is not imported
before a test asks for it.
"""

import pytest

STAND_IN = "_cuda_graphs"
NOTICED = pytest.StashKey()


def pytest_configure(config):
    config.addinivalue_line(
        "markers", "cuda_graphs: run on the stand-in for CUDA graphs, and on a GPU if there is one"
    )


@pytest.fixture
def cpu_graphs(request):
    """torch's CUDA names work on CPU tensors in this test; the value is the stand-in's device."""
    import cpu_graph

    with cpu_graph.cpu_graphs() as device:
        request.node.stash[NOTICED] = device.hints
        yield device


def pytest_generate_tests(metafunc):
    if metafunc.definition.get_closest_marker("cuda_graphs"):
        import torch

        places = ["stand-in", "gpu"] if torch.cuda.is_available() else ["stand-in"]
        metafunc.parametrize(STAND_IN, places, indirect=True)


@pytest.fixture(autouse=True)  # before the fixtures that make tensors
def _cuda_graphs(request):
    if not hasattr(request, "param"):
        yield None
        return
    if request.param == "stand-in":
        yield request.getfixturevalue("cpu_graphs")
        return
    import torch

    stream = torch.cuda.current_stream()
    yield None
    torch.cuda.set_stream(stream)  # a failed capture may leave its own
    torch.cuda.synchronize()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item):
    report = yield
    hints = item.stash.get(NOTICED, [])
    if report.failed and hints:
        report.sections.append(("what the stand-in for CUDA graphs noticed", "\n".join(hints)))
    return report
