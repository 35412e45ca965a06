"""Every type of every operator: what CUDA has no kernel for is refused, and nothing else is."""

import functools
import warnings

import pytest

from cpu_graph import cpu_graphs
from tests.cpu_graph import operator_sweep

pytestmark = pytest.mark.weekly
NO_KERNEL = "CUDA has no kernel", "_cuda", "cuda_frame", '"dot"', "getCudnnDataType"


@functools.cache
def missing():
    """(operator, type) of what the CPU takes and CUDA refuses."""
    return {
        (name, dtype)
        for name, operator in operator_sweep.database().items()
        for dtype in operator_sweep.without_kernel(operator)
    }


def eager(name, dtype):
    """What is said of each sample of a type: "" if it runs."""
    operator, said = operator_sweep.database()[name], []
    with cpu_graphs(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for sample in operator_sweep.samples(operator, dtype):
            given = operator_sweep.on_gpu((sample.input, sample.args, sample.kwargs))
            try:
                operator_sweep.called(operator, given)
                said.append("")
            except Exception as error:
                said.append(operator_sweep.told(error))
    return said


def is_refused(said):
    return any(part in one for one in said for part in NO_KERNEL)


def test_what_cuda_has_no_kernel_for_is_refused():
    """Of some operators the first samples are too simple to reach the kernel."""
    taken = {(name, dtype) for name, dtype in missing() if not is_refused(eager(name, dtype))}
    assert {name for name, _ in taken} <= {"einsum", "inner", "tensordot"}
    assert len(missing()) > 100


def test_every_type_is_replayed_as_eager_or_refused():
    found = {}
    for name, operator in operator_sweep.database().items():
        for dtype in operator.supported_dtypes("cpu"):
            with cpu_graphs():
                samples = operator_sweep.samples(operator, dtype)[:1]
                endings = [operator_sweep.one_sample(operator, sample) for sample in samples]
            found[name, dtype] = endings
    wrong = {
        row: endings
        for row, endings in found.items()
        if (is_refused(endings) and row not in missing()) or not is_known(endings)
    }
    assert wrong == {}


def is_known(endings):
    """Whether samples replay as eager, or end with CUDA's or PyTorch's words or NotModelled."""
    return operator_sweep.kind(endings) not in ("other", "failed") or is_refused(endings)
