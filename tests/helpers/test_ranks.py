"""Traces of several ranks: told apart; how much communication is exposed."""

import gzip
import json

import pytest

from helpers.ranks import distributed_info, gpu_times_per_rank, read_ranks
from tests.support.traces import kernel, launch, step
from trace_report.trace_file import TraceError


def trace_of(rank, begin=0.0, late=0.0, packed=True):
    """A step of 100 µs: a product, and an all-reduce that first overlaps it and then runs alone."""
    computed = kernel(begin + 10 + late, 30, 7, device=rank)
    reduced = kernel(begin + 20 + late, 40 - late, 7, stream=9, device=rank)
    reduced["name"] = "ncclDevKernel_AllReduce"
    events = [step(1, begin, 100), launch(begin + 1, 7, "cudaGraphLaunch"), computed, reduced]
    info = {"backend": "nccl", "rank": rank, "world_size": 2}
    text = json.dumps({"distributedInfo": info, "traceEvents": events}).encode()
    return gzip.compress(text) if packed else text


@pytest.fixture
def files(tmp_path):
    paths = [tmp_path / "one.json.gz", tmp_path / "two.json"]
    paths[0].write_bytes(trace_of(1, begin=5e6, late=8.0))
    paths[1].write_bytes(trace_of(0, packed=False))
    return paths


def test_a_trace_says_whose_it_is(files):
    assert [distributed_info(path)["rank"] for path in files] == [1, 0]
    traces = read_ranks(files)
    assert list(traces) == [0, 1] and [trace.path for trace in traces.values()] == files[::-1]


def test_a_trace_of_no_rank_or_of_one_twice_is_refused(files, tmp_path):
    with pytest.raises(TraceError, match="both of rank 1"):
        read_ranks([files[0], files[0]])
    files[1].write_text(json.dumps({"traceEvents": []}))
    with pytest.raises(TraceError, match="names no rank"):
        read_ranks(files)


def test_what_is_exposed(files):
    table = gpu_times_per_rank({"graph": read_ranks(files)})
    assert list(table.index) == [("graph", "rank 0"), ("graph", "rank 1")]
    assert table.loc[("graph", "rank 0")].tolist() == [1, 50, 30, 40, 20]
    assert table.loc[("graph", "rank 1")].tolist() == [1, 42, 30, 32, 12]
