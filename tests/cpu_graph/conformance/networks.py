"""Networks: forward and backward pass in one graph, in training and in evaluation."""

from functools import partial

import torch
from torch import nn

from tests.cpu_graph.conformance.common import captured
from tests.cpu_graph.conformance.outcomes import programs
from tests.cpu_graph.conformance.sameness import TURNS, Inputs, alike, tensors, warmed_up

RNN_BACKWARD = ["RuntimeError: cudnn RNN backward can only be called in training mode"]
NETWORKS = {
    "batch_norm": (lambda: nn.BatchNorm1d(3), "x"),
    "batch_norm_without_statistics": (
        lambda: nn.BatchNorm2d(3, track_running_stats=False),
        "image",
    ),
    "convolutions": (
        lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()),
        "image",
    ),
    "lstm": (lambda: nn.LSTM(3, 4), "sequence"),
    "gru": (lambda: nn.GRU(3, 4), "sequence"),
    "embedding_with_padding": (lambda: nn.Embedding(4, 3, padding_idx=0), "n"),
    "encoder": (lambda: nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True), "t"),
}


def trains_as_eager(make, feed, train):
    """Whether replays give eager's results, gradients and buffers."""
    torch.manual_seed(1)
    network = make().to("cuda").train(train)
    parameters = list(network.parameters())
    state = {name: value.clone() for name, value in network.state_dict().items()}

    def step(inputs):
        results = tensors(network(getattr(inputs, feed)))
        loss = sum(result.pow(2).sum() for result in results)
        return [*results, *torch.autograd.grad(loss, parameters)]

    inputs = Inputs()
    warmed_up(step, inputs)
    replay = captured(lambda: step(inputs))
    for turn in range(1, TURNS):
        ends = []
        for once in (replay, lambda turn=turn: step(Inputs(turn))):
            network.load_state_dict(state)
            inputs.write(turn)
            ends.append([tensor.detach().clone() for tensor in once()])
            ends[-1] += [value.clone() for value in network.state_dict().values()]
            torch.cuda.synchronize()
        if not all(map(alike, *ends)):
            return False
    return True


for _name, (_make, _feed) in NETWORKS.items():
    for _train in (False, True):
        _where = "training" if _train else "evaluation"
        _gives = RNN_BACKWARD if _name in ("lstm", "gru") and not _train else True
        _row = _gives, partial(trains_as_eager, _make, _feed, _train)
        programs(**{f"{_name}_in_{_where}": _row})
