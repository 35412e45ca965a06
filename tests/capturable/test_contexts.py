"""Tables of operators, each judged alike with gradients, without, in inference mode and under
autocast; and what runs on the CPU anyway is left alone."""

import linecache
from contextlib import nullcontext
from functools import partial

import pytest
import torch
from torch.nn import functional as F

from capturable import preflight

CONTEXTS = {
    "gradients": nullcontext,
    "no_grad": torch.no_grad,
    "inference": torch.inference_mode,
    "autocast": partial(torch.autocast, "cpu", dtype=torch.bfloat16),
}
X = torch.linspace(-1, 1, 16).reshape(4, 4)
K = torch.tensor(1)
IDS = torch.arange(4)
SPARSE = torch.eye(4).to_sparse()

WAITS = [  # of the CPU for the GPU: sync
    lambda x: bool(x.sum() > 0),
    lambda x: x.mean().item(),
    lambda x: x.tolist(),
    lambda x: f"{x.mean():.2f}",
    lambda x: torch.equal(x, x),
    lambda x: x[x > 0],
    lambda x: x.nonzero(as_tuple=True),
    lambda x: x.masked_select(x > 0),
    lambda x: x.unique(),
    lambda x: IDS.unique_consecutive(),
    lambda x: IDS.bincount(),
    lambda x: F.one_hot(IDS),
    lambda x: x.repeat_interleave(IDS, dim=0),
    lambda x: torch.linalg.inv(x.float() + 9 * torch.eye(4, device=x.device)),
    lambda x: torch.histc(x.float(), 4),
    lambda x: torch.cov(x.float()),
    lambda x: F.ctc_loss(x.log_softmax(-1)[:, None], IDS[None, 1:3], K[None] + 3, K[None] + 1),
    lambda x: x[K],
    lambda x: x[0, K : K + 2],
    lambda x: x.clone().__setitem__(K, 0.0),
    lambda x: x.clone().__setitem__(x > 0, x[0, :1].expand(8)),
    lambda x: x.split([K, 3]),
    lambda x: x.masked_fill(x > 0, x.min()),
    lambda x: SPARSE @ x.float(),
]
COPIES = [  # from the CPU: copy
    lambda x: x[[0, 2]],
    lambda x: x.clone().__setitem__([0, 2], 0.0),
    lambda x: x[torch.tensor([0, 2])],
    lambda x: x.clone().__setitem__(torch.arange(2), 1.0),
    lambda x: x + torch.ones(4).to(x.device, x.dtype),
    lambda x: x * torch.linspace(0, 1, 4).type_as(x),
    lambda x: x + torch.tensor([1.0, 2.0, 3.0, 4.0], device=x.device),
    lambda x: x + x.new_tensor([1.0, 2.0, 3.0, 4.0]),
    lambda x: x.clone().copy_(torch.zeros(4, 4)),
]
DRAWS = [  # on the CPU: CPU random numbers
    lambda x: torch.rand(1).item() * x,
    lambda x: torch.randint(0, 4, (2,)).tolist(),
    lambda x: torch.empty(2).normal_(generator=torch.Generator()).sum().item(),
    lambda x: bool(torch.bernoulli(torch.tensor(0.5))),
]
FINE = [
    lambda x: torch.tensor([2, 2]).tolist(),
    lambda x: int(torch.ceil(torch.tensor(4 / 3)).item()) * x,
    lambda x: [x * t for t in torch.linspace(0, 1, 3)],
    lambda x: x * torch.tensor(2.0),
    lambda x: torch.zeros(3)[torch.tensor([True, False, True])].sum().item() + x,
    lambda x: x.clone().__setitem__(0, 1.0),
    lambda x: x.clone().__setitem__((slice(1, 3), None, 0), x[0, 0]),
    lambda x: x.clone().__setitem__(IDS, 0.5),
    lambda x: x.clone().__setitem__(x > 0, 0.5),
    lambda x: x[IDS],
    lambda x: F.one_hot(IDS, 5),
    lambda x: x.to(x.device).to(torch.float64),
    lambda x: torch.rand_like(x).masked_fill(x > 0, 0.0),
    lambda x: x.new_zeros(4).add_(x[0]),
    lambda x: torch.linalg.slogdet(x.float() + 9 * torch.eye(4, device=x.device)),
    lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None], is_causal=True),
    lambda x: x.std() + x.quantile(0.5, dim=0).sum() if x.dtype == torch.float32 else x,
]
TABLES = {"sync": WAITS, "copy": COPIES, "CPU random numbers": DRAWS, "": FINE}


@pytest.mark.parametrize("context", CONTEXTS)
def test_a_line_is_judged_alike_in_each_context(context):
    """One step runs all of them, so that the tables take one preflight for each context."""

    def step(x):
        with CONTEXTS[context]():
            for table in TABLES.values():
                for operate in table:
                    operate(x)

    found = {}
    for finding in preflight(step, X.clone(), device="cpu"):
        found.setdefault(finding.number, set()).add(finding.rule)
    for rule, table in TABLES.items():
        for operate in table:
            number = operate.__code__.co_firstlineno
            rules = found.pop(number, set())
            code = linecache.getline(__file__, number).strip()
            assert rule in rules if rule else not rules, (context, rule, rules, code)
    assert not found


def test_a_default_device_is_that_of_the_gpu():
    def makes(x):
        return x + torch.rand(4) + torch.arange(4)

    def names(x):
        with torch.device("cpu"):
            return makes(x)

    assert not preflight(names, X.clone(), device="cpu")
    with torch.device("cpu"):
        assert not preflight(makes, X.clone(), device="cpu")
    torch.set_default_device("cpu")
    try:
        assert not preflight(makes, X.clone(), device="cpu")
    finally:
        torch.set_default_device(None)
    found = {f.rule for f in preflight(makes, X.clone(), device="cpu")}
    assert found == {"CPU random numbers", "copy"}
