"""A pipeline of two stages under Megatron's graphs: does it train as eager does?

    torchrun --nproc-per-node=2 -m examples.megatron_pipeline local
    torchrun --nproc-per-node=2 -m examples.megatron_pipeline local --keep-outputs

The kind of graphs is local, transformer_engine or full_iteration. Needs megatron-core, Transformer
Engine and two GPUs, or one with NCCL_MULTI_RANK_GPU_ENABLE=1 and NCCL 2.30 (next to torch 2.11:
that of a newer torch, by LD_PRELOAD). Each rank prints one line: whether losses (of the last stage)
and parameters are bitwise those of eager, and how many runners, pairs of a forward and a backward
graph, local keeps.

--keep-outputs: by default Megatron frees the data of a stage's output once it is sent.
"""

import json
import os
import sys
from argparse import ArgumentParser, Namespace
from contextlib import redirect_stdout
from io import StringIO
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from examples.megatron_gpt import (
    build_model,
    build_optimizer,
    forward_step,
    free_graphs,
    make_microbatch,
    quiet,
    wrap,
)

GPT = """--num-layers 4 --hidden-size 512 --num-attention-heads 4 --seq-length 256
--max-position-embeddings 256 --micro-batch-size 2 --global-batch-size 8 --bf16 --lr 1e-3
--hidden-dropout 0 --attention-dropout 0 --pipeline-model-parallel-size 2
--no-gradient-accumulation-fusion --no-bias-gelu-fusion --no-bias-dropout-fusion
--no-check-for-nan-in-loss-and-grad --cuda-graph-warmup-steps 1"""
MICROBATCHES = 4
ITERATIONS = 6


def join() -> int:
    """Become a stage of the pipeline; returns the rank. torchrun sets what this reads."""
    from megatron.core import num_microbatches_calculator, parallel_state

    rank = int(os.environ["RANK"])
    device = torch.device("cuda", rank % torch.cuda.device_count())
    torch.cuda.set_device(device)
    quiet()
    torch.distributed.init_process_group("nccl", device_id=device)
    parallel_state.initialize_model_parallel(pipeline_model_parallel_size=2)
    num_microbatches_calculator.init_num_microbatches_calculator(rank, None, 2 * MICROBATCHES, 2, 1)
    return rank


def parse(kind: str) -> Namespace:
    """What Megatron's command line parser returns for the small GPT with this kind of graphs."""
    from megatron.training import arguments

    sys.argv = ["pretrain_gpt.py", *GPT.split(), "--cuda-graph-impl", kind]
    with redirect_stdout(StringIO()):  # it lists all its arguments
        args = arguments.parse_args()
        arguments.validate_args(args)
    return args


def build(kind: str, keep_outputs: bool) -> Any:
    """This rank's stage, with its optimizer, schedule and graphs."""
    from megatron.core import parallel_state
    from megatron.core.full_cuda_graph import FullCudaGraphWrapper
    from megatron.core.pipeline_parallel import get_forward_backward_func
    from megatron.core.transformer.cuda_graphs import TECudaGraphHelper

    args = parse(kind)
    ends = {
        "pre_process": parallel_state.is_pipeline_first_stage(),
        "post_process": parallel_state.is_pipeline_last_stage(),
    }
    model, config = build_model(args, **ends)
    config.deallocate_pipeline_outputs = not keep_outputs
    model = wrap(args, model, config)
    stage = SimpleNamespace(args=args, model=model, te_graphs=None)
    stage.optimizer = build_optimizer(args, model)
    stage.schedule = get_forward_backward_func()
    if kind == "full_iteration":
        stage.schedule = FullCudaGraphWrapper(stage.schedule, args.cuda_graph_warmup_steps)
    if kind == "transformer_engine":
        sizes = {"seq_length": args.seq_length, "micro_batch_size": args.micro_batch_size}
        stage.te_graphs = TECudaGraphHelper([model], config, **sizes)
    return stage


def train(kind: str, keep_outputs: bool, batches: list) -> tuple[Any, list[Tensor], list[Tensor]]:
    """The stage, the losses of each iteration (of the last stage only), and the parameters."""
    stage = build(kind, keep_outputs)
    losses = []
    for iteration, batch in enumerate(batches):
        if stage.te_graphs and iteration == stage.args.cuda_graph_warmup_steps:
            stage.te_graphs.create_cudagraphs()
        stage.model.zero_grad_buffer()
        stage.optimizer.zero_grad()
        reports = stage.schedule(
            forward_step_func=forward_step,
            data_iterator=iter(batch),
            model=[stage.model],
            num_microbatches=MICROBATCHES,
            seq_length=stage.args.seq_length,
            micro_batch_size=stage.args.micro_batch_size,
            forward_only=False,
        )
        losses += [report["lm loss"].clone() for report in reports]
        stage.optimizer.step()
    torch.cuda.synchronize()
    parameters = [parameter.detach().clone() for parameter in stage.model.parameters()]
    return stage, losses, parameters


def main() -> None:
    """Train in eager, then with graphs, and print the comparison."""
    parser = ArgumentParser(description="A pipeline of two stages under Megatron's graphs.")
    parser.add_argument("kind", choices=["local", "transformer_engine", "full_iteration"])
    parser.add_argument("--keep-outputs", action="store_true", help="free no output that was sent")
    asked = parser.parse_args()
    os.environ["NVTE_ALLOW_NONDETERMINISTIC_ALGO"] = "0"  # attention that repeats bitwise
    rank = join()
    torch.manual_seed(0)
    batches = [[make_microbatch() for _ in range(MICROBATCHES)] for _ in range(ITERATIONS)]
    stage, eager_losses, eager = train("none", False, batches)
    free_graphs()
    stage, losses, parameters = train(asked.kind, asked.keep_outputs, batches)
    row: dict[str, Any] = {"rank": rank, "kind": asked.kind, "outputs kept": asked.keep_outputs}
    if eager_losses:
        row["losses equal"] = all(map(torch.equal, losses, eager_losses))
        row["losses"] = len(losses)
    row["parameters equal"] = all(map(torch.equal, parameters, eager))
    managers = [getattr(module, "cudagraph_manager", None) for module in stage.model.modules()]
    row["runners by layer"] = [len(one.cudagraph_runners) for one in managers if one]
    print(json.dumps(row), flush=True)
    torch.distributed.barrier()
    os._exit(0)  # at once: the groups would wait for the graphs


if __name__ == "__main__":
    main()
