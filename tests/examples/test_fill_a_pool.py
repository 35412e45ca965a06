"""What fills a pool: every step can be captured. How large the pools are, only a GPU knows."""

import torch

from cpu_graph import cpu_graphs
from tests.support.scripts import names_of


def test_each_step_is_captured_in_a_pool_of_its_own(monkeypatch):
    asked = []

    def snapshot(mempool_id):
        asked.append(mempool_id)
        return [{"total_size": 3 * 2**20}, {"total_size": 2**20}]

    names = names_of("fill_a_pool", smaller=[("WIDTH = 4096", "WIDTH = 8"), ("[:512]", "[:4]")])
    with cpu_graphs():
        monkeypatch.setattr(torch.cuda, "memory_snapshot", snapshot)
        mib = names["measure"]()
    assert set(mib.values()) == {4.0} and len(mib) == len(set(asked)) == 9
