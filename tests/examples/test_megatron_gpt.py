"""The training of Graph Megatron, without Megatron, which no test of it imports: its own lines."""

from types import SimpleNamespace

import pytest
import torch

from cpu_graph import cpu_graphs
from examples import megatron_gpt
from examples.megatron_gpt import Training

ARGS = {
    "seed": 0,
    "train_iters": 3,
    "log_interval": 2,
    "micro_batch_size": 2,
    "global_batch_size": 8,
    "data_parallel_size": 1,
    "seq_length": 5,
    "cuda_graph_warmup_steps": 1,
}


def test_batches_have_all_microbatches_and_repeat():
    with cpu_graphs():
        one, other = (megatron_gpt.make_batches(SimpleNamespace(**ARGS)) for _ in range(2))
        assert [len(batch) for batch in one] == [4, 4, 4]
        for name in ("input_ids", "labels", "position_ids"):
            assert one[2][3][name].shape == (2, 5)
            assert torch.equal(one[2][3][name], other[2][3][name])
        assert not torch.equal(one[0][0]["input_ids"], one[0][1]["input_ids"])
        assert torch.equal(one[0][0]["input_ids"][:, 1:], one[0][0]["labels"][:, :-1])


class Chunk:
    """Stands for a chunk of the model: its losses are the sums of what it gets."""

    zeroed = 0
    training = True

    def train(self, mode=True):
        self.training = mode

    def eval(self):
        self.train(False)

    def zero_grad_buffer(self):
        self.zeroed += 1

    def __call__(self, input_ids, labels, position_ids, attention_mask):
        assert attention_mask is None
        return (input_ids + labels + position_ids).float()


def schedule(forward_step_func, data_iterator, model, num_microbatches, forward_only, **sizes):
    """Stands for Megatron's: the last chunk reports the losses; each has its own iterator."""
    assert sizes == {"seq_length": 5, "micro_batch_size": 2}
    training = not forward_only
    assert [chunk.training for chunk in model] == 2 * [training]
    assert torch.is_grad_enabled() == training
    for iterator, chunk in zip(data_iterator, model, strict=True):
        reports = []
        for _ in range(num_microbatches):
            token_losses, loss_func = forward_step_func(iterator, chunk)
            reports.append(loss_func(token_losses)[1])
    return reports


class Calls(list):
    """Stands for the optimizer and for the graphs of layers: the names of the methods called."""

    def __bool__(self):
        return True

    def __getattr__(self, name):
        return lambda: self.append(name)


@pytest.fixture
def training(monkeypatch):
    calls = Calls()
    monkeypatch.setattr(megatron_gpt, "build_optimizer", lambda args, model: calls)
    training = Training.__new__(Training)
    training.args, training.schedule = SimpleNamespace(**ARGS), schedule
    training.model, training.te_graphs = [Chunk(), Chunk()], calls
    with cpu_graphs():
        training.batches = megatron_gpt.make_batches(training.args)
        yield training


def test_it_trains_on_all_microbatches(training, capsys):
    training.train()
    sums = [
        [sum(value.float() for value in microbatch.values()).mean() for microbatch in batch]
        for batch in training.batches
    ]
    assert torch.equal(training.losses.cpu(), torch.tensor(sums))
    assert [chunk.zeroed for chunk in training.model] == [3, 3]
    [line] = capsys.readouterr().out.splitlines()  # of the second iteration
    assert line.startswith("iteration 2/3 | ") and line.endswith(f"{training.losses[1].mean():.6f}")


def test_layers_are_captured_after_the_warm_up_steps(training):
    training.train()
    step = ["zero_grad", "step"]
    assert training.te_graphs == [*step, "create_cudagraphs", *step, *step]


def test_validation_runs_in_eval_mode_and_leaves_training_mode(training):
    training.train()
    assert torch.equal(training.validate(training.batches[:2]), training.losses[:2])
    assert all(chunk.training for chunk in training.model)


def test_a_stage_that_has_no_losses_trains_and_logs_nothing(training, capsys):
    training.schedule = lambda **options: []
    training.train()
    assert training.losses.shape == (3, 0) and not capsys.readouterr().out


def test_the_checksum_sees_one_bit(capsys):
    weights = torch.ones(4, dtype=torch.bfloat16)
    for _ in range(2):
        megatron_gpt.report(0, torch.ones(1, 2), [weights])
        weights.view(torch.int16)[0] += 1
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("rank 0: losses 1.000000 1.000000, weights ") and first != second
