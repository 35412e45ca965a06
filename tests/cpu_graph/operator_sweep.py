"""Every operator of torch's own test database, captured and replayed: how does it end, here and on
a GPU?

`python -m tests.cpu_graph.operator_sweep` writes cpu_graph/OPERATORS.md
from the stand-in's endings and, where they are recorded, a GPU's.
"""

import functools
import gc
import sys
import types
import unittest
import warnings
from itertools import islice
from unittest.mock import patch

import torch
from torch.utils._pytree import tree_map_only

from tests.cpu_graph.conformance.outcomes import chain, first_line
from tests.cpu_graph.conformance.sameness import tensors

stub = types.ModuleType("expecttest")  # torch's database imports it and uses none of it
stub.TestCase = unittest.TestCase
stub.assert_expected_inline = None
sys.modules.setdefault("expecttest", stub)

SAMPLES = 3
UNDEFINED = "empty", "rand", "bernoulli"  # values that nobody knows, which may be alike by chance
DATABASE = "torch.testing._internal.common_methods_invocations"


@functools.cache
def database() -> dict:
    """torch's operators by name, each with sample inputs."""
    from torch.testing._internal.common_methods_invocations import op_db

    return {
        op.name + (f".{op.variant_test_name}" if op.variant_test_name else ""): op for op in op_db
    }


def samples(operator) -> list:
    """The first sample inputs, on the CPU, of float32 if there are some."""
    types = sorted(operator.supported_dtypes("cpu"), key=str)
    if not types:
        return []  # it runs on a GPU alone
    chosen = torch.float32 if torch.float32 in types else types[0]
    torch.manual_seed(0)
    return list(islice(operator.sample_inputs("cpu", chosen, requires_grad=False), SAMPLES))


def attempt(operator) -> list[str]:
    """How each sample ends: "same", or what is wrong."""
    return [one_sample(operator, sample) for sample in samples(operator)]


def one_sample(operator, sample) -> str:
    given = sample.input, sample.args, sample.kwargs
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            eager = [called(operator, on_gpu(given)) for _ in range(2)]
        except Exception as error:
            return f"eager: {told(error)}"
        inputs = on_gpu(given)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        stream = torch.cuda.current_stream()
        gc.disable()  # an old graph that is collected in a capture breaks it
        try:
            with torch.cuda.graph(graph):
                captured = called(operator, inputs)
            graph.replay()
            torch.cuda.synchronize()
        except Exception as error:
            torch.cuda.set_stream(stream)
            return f"capture: {told(chain(error)[0])}"
        finally:
            gc.enable()
        return compared(eager, captured, any(part in operator.name for part in UNDEFINED))


def on_gpu(given):
    def there(tensor):
        return tensor.to("cuda", copy=True)

    given = tree_map_only(torch.Tensor, there, given)
    return tree_map_only(torch.device, lambda _: torch.device("cuda"), given)


def called(operator, given):
    value, args, kwargs = given
    if str(kwargs.get("device", "")).startswith("cpu"):
        kwargs = kwargs | {"device": "cuda"}
    # the database's own seeds each call, which a capture refuses
    with patch(f"{DATABASE}.wrapper_set_seed", lambda call, *args, **kwargs: call(*args, **kwargs)):
        return operator.op(value, *args, **kwargs)


def told(error) -> str:
    return f"{type(error).__name__}: {first_line(error)[:100]}"


def compared(eager, captured, undefined) -> str:
    """Whether a replay gives what eager gives; of undefined or random values, types and shapes
    alone.
    """
    one, other, mine = map(tensors, (*eager, captured))
    if [described(t) for t in one] != [described(t) for t in mine]:
        return f"shapes: {[described(t) for t in mine]}, eager {[described(t) for t in one]}"[:200]
    for first_run, second_run, replayed in zip(one, other, mine, strict=True):
        if not undefined and alike(first_run, second_run) and not alike(first_run, replayed):
            return "values"
    return "same"


def described(tensor):
    return list(tensor.shape), str(tensor.dtype), str(tensor.layout)


def alike(one, other):
    one, other = (tensor.detach().cpu() for tensor in (one, other))
    if one.layout is not torch.strided:
        one, other = one.to_dense(), other.to_dense()
    if not (one.is_floating_point() or one.is_complex()):
        return torch.equal(one, other)
    one, other = (tensor.resolve_conj().to(torch.complex128) for tensor in (one, other))
    return torch.allclose(one, other, rtol=1e-3, atol=1e-4, equal_nan=True)


KINDS = {  # kind -> what it is called in the list, and what that means
    "same": ("the same", "a replay gives what eager gives, for every sample"),
    "refused": (
        "refused",
        "for some samples the capture is refused with CUDA's or PyTorch's words",
    ),
    "not modelled": ("not modelled", "for some samples it raises NotModelled"),
    "other": ("different", "a replay gives other values or shapes"),
    "failed": ("failed", "another error"),
    "untried": ("not tried", "no sample runs on the CPU"),
}
REFUSED = "CUDA error", "during CUDA graph capture", "Expected all tensors to be on the same device"
# samples that need a GPU, or another storage
ON_A_GPU_ALONE = "Jiterator", "requiring a storage size"


def kind(endings: list[str]) -> str:
    """What kind of ending an operator has: the worst of its samples'."""
    tried = [one for one in endings if not any(part in one for part in ON_A_GPU_ALONE)]
    if not tried:
        return "untried"
    kinds = {kind_of_one(one) for one in tried}
    order = "failed", "other", "not modelled", "refused", "same"
    return next(word for word in order if word in kinds)


def kind_of_one(ending: str) -> str:
    if ending == "same":
        return "same"
    if ending.startswith(("shapes", "values")):
        return "other"
    if "NotModelled" in ending:
        return "not modelled"
    return "refused" if any(part in ending for part in REFUSED) else "failed"


def page(found: dict[str, list[str]]) -> str:
    """The list as a page."""
    kinds = {name: kind(endings) for name, endings in found.items()}
    lines = [
        "# Operators in a capture on the stand-in",
        "",
        f"{len(found)} operators of torch's own test database, up to {SAMPLES} samples each, "
        "captured, replayed "
        f"and compared with eager, with torch {torch.__version__.split('+')[0]}. "
        "`python -m tests.cpu_graph.operator_sweep` writes this page, a test compares it.",
        "",
        "| | operators | |",
        "|---|---|---|",
    ]
    lines += [
        f"| {word} | {sum(one == key for one in kinds.values())} | {meaning} |"
        for key, (word, meaning) in KINDS.items()
    ]
    for key, (word, _) in KINDS.items():
        names = sorted(name for name, one in kinds.items() if one == key)
        if key != "same" and names:
            lines += ["", f"## {word.capitalize()}", "", ", ".join(f"`{name}`" for name in names)]
    return "\n".join(lines) + "\n"


def main() -> None:
    from course.paths import ROOT
    from cpu_graph import cpu_graphs

    found = {}
    for name, operator in database().items():
        with cpu_graphs():
            found[name] = attempt(operator)
    (ROOT / "cpu_graph" / "OPERATORS.md").write_text(page(found))


if __name__ == "__main__":
    main()
