"""Train Megatron's GPT on random tokens, from Megatron's command line, with or without CUDA graphs.

    python megatron_gpt.py --num-layers 4 --hidden-size 512 --num-attention-heads 4 \
        --seq-length 256 --max-position-embeddings 1024 --micro-batch-size 2 --global-batch-size 8 \
        --bf16 --lr 1e-3 --train-iters 6 --log-interval 1 --no-gradient-accumulation-fusion \
        --no-check-for-nan-in-loss-and-grad --cuda-graph-impl full_iteration

It builds model, data parallelism, optimizer and schedule as Megatron's pretrain_gpt.py does. Under
torchrun with two ranks, --pipeline-model-parallel-size 2 trains a pipeline, and
--num-virtual-stages-per-pipeline-rank 2 interleaves its chunks. At the end each rank prints the
losses (of the last stage) and a checksum of its weights.

Copy the numbered lines into a loop of your own. Needs megatron-core 0.19 and, for the graphs of its
layers, Transformer Engine.
"""

import gc
import logging
import os
import sys
import warnings
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from io import StringIO
from time import perf_counter
from typing import Any

import torch
from torch import Tensor, nn

VOCAB_SIZE = 1024


class Training:
    """A training, as a Megatron command line describes it: model, schedule and batches."""

    def __init__(self, options: str) -> None:
        quiet()
        from megatron.core.full_cuda_graph import FullCudaGraphWrapper
        from megatron.core.pipeline_parallel import get_forward_backward_func
        from megatron.core.transformer.cuda_graphs import TECudaGraphHelper

        self.args = parse(options)
        join(self.args)
        self.batches = make_batches(self.args)
        self.model, config = build_model(self.args)
        self.schedule = get_forward_backward_func()
        self.te_graphs = None
        self.losses = torch.empty(0)
        if self.args.cuda_graph_impl == "full_iteration":  # 1
            warmup_steps = self.args.cuda_graph_warmup_steps
            self.schedule = FullCudaGraphWrapper(self.schedule, warmup_steps)
        if self.args.cuda_graph_impl == "transformer_engine":  # 2
            sizes = {
                "seq_length": self.args.seq_length,
                "micro_batch_size": self.args.micro_batch_size,
            }
            self.te_graphs = TECudaGraphHelper(self.model, config, **sizes)

    def forward_backward(self, batch: list[dict], forward_only: bool = False) -> Tensor:
        """The loss of each microbatch; an empty tensor on all stages of a pipeline but the last.

        Sets the gradients anew, unless forward_only.
        """
        if not forward_only:
            self.zero_gradients()
        reports = self.schedule(
            forward_step_func=forward_step,
            data_iterator=[iter(batch) for _ in self.model],
            model=self.model,
            num_microbatches=len(batch),
            seq_length=self.args.seq_length,
            micro_batch_size=self.args.micro_batch_size,
            forward_only=forward_only,
        )
        losses = [report["lm loss"] for report in reports]
        return torch.stack(losses) if losses else torch.empty(0)

    def train(self) -> None:
        """Train on all batches. losses then has a row for each of them."""
        optimizer = build_optimizer(self.args, self.model)
        losses = []
        for iteration, batch in enumerate(self.batches):
            start = perf_counter()
            if self.te_graphs and iteration == self.args.cuda_graph_warmup_steps:
                self.te_graphs.create_cudagraphs()  # 3
            optimizer.zero_grad()
            losses.append(self.forward_backward(batch))
            optimizer.step()
            torch.cuda.synchronize()
            self.log(iteration + 1, losses[-1], 1000 * (perf_counter() - start))
        self.losses = torch.stack(losses)

    def validate(self, batches: list[list[dict]]) -> Tensor:
        """The losses in eval mode, a row for each batch."""
        for chunk in self.model:
            chunk.eval()
        with torch.no_grad():
            losses = [self.forward_backward(batch, forward_only=True) for batch in batches]
        for chunk in self.model:
            chunk.train()
        return torch.stack(losses)

    def zero_gradients(self) -> None:
        """Fill the buffers with zeros to which the microbatches add their gradients."""
        for chunk in self.model:
            chunk.zero_grad_buffer()

    def log(self, iteration: int, losses: Tensor, ms: float) -> None:
        """Print a line in every --log-interval iterations."""
        if iteration % self.args.log_interval == 0 and len(losses):
            print(
                f"iteration {iteration}/{len(self.batches)} | elapsed time per iteration (ms): "
                f"{ms:.1f} | lm loss: {losses.mean():.6f}"
            )

    def parameter_copies(self) -> list[Tensor]:
        """Copies of all parameters of this rank."""
        return [weight.detach().clone() for chunk in self.model for weight in chunk.parameters()]

    def free_graphs(self) -> None:
        """Release the graphs, results and static inputs that Megatron keeps in its classes.

        The graphs of layers are cleared by hand: they keep the model alive through autograd, which
        Python's garbage collector cannot follow.
        """
        from megatron.core.full_cuda_graph import FullCudaGraphWrapper, StaticBufferLoader
        from megatron.core.transformer import cuda_graphs

        for chunk in self.model:
            for module in chunk.modules():
                if hasattr(module, "cudagraph_manager"):
                    module.cudagraph_manager.cudagraph_runners.clear()
        if self.te_graphs and self.te_graphs.graphs_created():
            self.te_graphs.delete_cuda_graphs()
        cuda_graphs.delete_cuda_graphs()
        FullCudaGraphWrapper(None).reset_cuda_graph()
        StaticBufferLoader.static_buffers = {"training": [], "validation": []}
        torch.cuda.set_stream(torch.cuda.default_stream())
        gc.collect()
        torch.cuda.empty_cache()


def quiet() -> None:
    """Switch off warnings, Megatron's messages below errors, and its progress bars."""
    warnings.simplefilter("ignore")  # of each optional package that is missing
    from megatron.core.transformer import cuda_graphs

    warnings.simplefilter("ignore")  # Transformer Engine has switched its own on
    cuda_graphs.HAVE_TQDM = False
    torch.autograd.graph.set_warn_on_accumulate_grad_stream_mismatch(False)  # DDP has its stream
    logging.getLogger("megatron").setLevel(logging.ERROR)
    logging.getLogger("DotProductAttention").disabled = True


def parse(options: str) -> Namespace:
    """What Megatron's parser makes of a command line. Raises SystemExit if it is refused."""
    from megatron.training import arguments

    sys.argv = ["megatron_gpt.py", *options.split()]
    with redirect_stdout(StringIO()):  # it lists all its arguments
        args = arguments.parse_args()
        arguments.validate_args(args)
    if args.train_iters is None:
        raise SystemExit("megatron_gpt.py: say how many iterations to train, as --train-iters 6")
    return args


def join(args: Namespace) -> None:
    """Set up the process groups that Megatron needs even for one process, once."""
    from megatron.core import num_microbatches_calculator, parallel_state

    if torch.distributed.is_initialized():
        return
    os.environ["NVTE_ALLOW_NONDETERMINISTIC_ALGO"] = "0"  # attention that repeats bitwise
    device = torch.device("cuda", args.rank % torch.cuda.device_count())
    torch.cuda.set_device(device)
    ranks = {"rank": args.rank, "world_size": args.world_size}
    store = torch.distributed.HashStore() if args.world_size == 1 else None
    torch.distributed.init_process_group("nccl", store=store, device_id=device, **ranks)
    parallel_state.initialize_model_parallel(
        pipeline_model_parallel_size=args.pipeline_model_parallel_size,
        virtual_pipeline_model_parallel_size=args.virtual_pipeline_model_parallel_size,
    )
    num_microbatches_calculator.init_num_microbatches_calculator(
        args.rank, None, args.global_batch_size, args.micro_batch_size, args.data_parallel_size
    )


def build_model(args: Namespace) -> tuple[list[nn.Module], Any]:
    """This rank's chunks of the GPT, each in Megatron's DDP, and their TransformerConfig.

    args.seed decides the weights.
    """
    from megatron.core import parallel_state, tensor_parallel
    from megatron.core.distributed import finalize_model_grads
    from megatron.core.models.gpt import GPTModel, gpt_layer_specs
    from megatron.core.transformer import cuda_graphs
    from megatron.training.arguments import core_transformer_config_from_args

    torch.manual_seed(args.seed)
    tracker = {"te_rng_tracker": cuda_graphs.HAVE_TE_GRAPHS, "use_cudagraphable_rng": True}
    tensor_parallel.model_parallel_cuda_manual_seed(args.seed, **tracker, force_reset_rng=True)  # 4
    config = core_transformer_config_from_args(args)
    config.finalize_model_grads_func = finalize_model_grads
    config.deallocate_pipeline_outputs = args.cuda_graph_impl != "local"  # 5
    config.batch_p2p_sync = args.cuda_graph_impl != "full_iteration"  # 6
    if args.transformer_impl == "local":
        layer = gpt_layer_specs.get_gpt_layer_local_spec()
    else:
        layer = gpt_layer_specs.get_gpt_layer_with_transformer_engine_spec()
    chunks = args.virtual_pipeline_model_parallel_size
    model = []
    for number in range(chunks or 1):
        vp_stage = number if chunks else None
        stage = {"ignore_virtual": False, "vp_stage": vp_stage}
        chunk = GPTModel(
            config,
            layer,
            VOCAB_SIZE,
            args.max_position_embeddings,
            pre_process=parallel_state.is_pipeline_first_stage(**stage),
            post_process=parallel_state.is_pipeline_last_stage(**stage),
            vp_stage=vp_stage,
        )
        model.append(wrap(args, chunk.cuda().bfloat16(), config))
    return model, config


def wrap(args: Namespace, chunk: nn.Module, config: Any) -> nn.Module:
    """The chunk in Megatron's DistributedDataParallel, built on a side stream as in training.py.

    The autograd nodes that add up gradients run on the stream on which they were created. For
    full_iteration that has to be the stream of the capture: on the default stream, the capture
    raises error 906 (torch 2.11).
    """
    from megatron.core.distributed import DistributedDataParallel
    from megatron.core.full_cuda_graph import get_shared_capture_stream
    from megatron.training.training import get_megatron_ddp_config

    stream = torch.cuda.Stream()
    if args.cuda_graph_impl == "full_iteration":
        stream = get_shared_capture_stream()  # 7
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        ddp = DistributedDataParallel(config, get_megatron_ddp_config(args), chunk)
    torch.cuda.synchronize()
    return ddp


def build_optimizer(args: Namespace, model: list[nn.Module]) -> Any:
    """Adam with float32 copies of the parameters and clipping."""
    from megatron.core.optimizer import get_megatron_optimizer
    from megatron.training.training import get_megatron_optimizer_config

    config, overrides = get_megatron_optimizer_config(args)
    return get_megatron_optimizer(config, model, overrides)


def make_batches(args: Namespace) -> list[list[dict[str, Tensor]]]:
    """Random microbatches for each iteration: input_ids, labels and position_ids, each (B, T)."""
    samples = args.micro_batch_size * args.data_parallel_size
    generator = torch.Generator("cuda").manual_seed(args.seed)
    batches = []
    for _ in range(args.train_iters):
        count = args.global_batch_size // samples
        batches.append([make_microbatch(args, generator) for _ in range(count)])
    return batches


def make_microbatch(args: Namespace, generator: torch.Generator) -> dict[str, Tensor]:
    """Random tokens, with the next tokens as labels."""
    size = (args.micro_batch_size, args.seq_length + 1)
    tokens = torch.randint(VOCAB_SIZE, size, device="cuda", generator=generator)
    return {
        "input_ids": tokens[:, :-1].clone(),
        "labels": tokens[:, 1:].clone(),
        "position_ids": torch.arange(args.seq_length, device="cuda").repeat(size[0], 1),
    }


def loss_func(token_losses: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """The loss of a microbatch, and what the schedule reports of it."""
    loss = token_losses.mean()
    return loss, {"lm loss": loss.detach().clone()}


def forward_step(data_iterator: Iterator, model: nn.Module) -> tuple[Tensor, Callable]:
    """What Megatron's schedule calls for each microbatch: the tokens' losses, and loss_func."""
    return model(**next(data_iterator), attention_mask=None), loss_func


def print_losses_and_checksum(rank: int, losses: Tensor, parameters: list[Tensor]) -> None:
    """Print losses and a checksum of the weights, the sum of their bits as integers."""
    values = " ".join(f"{loss:.6f}" for loss in losses.flatten().tolist())
    bits = [weight.view(torch.int16).sum() for weight in parameters]
    checksum = f"{int(sum(bits)) % 2**32:08x}"
    print(f"rank {rank}: losses {values}, weights {checksum}\n", end="", flush=True)  # in one piece


def main() -> None:
    """Train as the command line says, and report."""
    training = Training(" ".join(sys.argv[1:]))
    training.train()
    print_losses_and_checksum(training.args.rank, training.losses, training.parameter_copies())
    torch.distributed.barrier()
    sys.stdout.flush()
    os._exit(0)  # at once: the process groups would wait for the graphs


if __name__ == "__main__":
    main()
