"""Megatron's GPT on one GPU, as Megatron's pretrain_gpt.py builds it: model, optimizer, batches.

    one_process()
    model, config = build_model(args)
    model = wrap(args, model, config)
    optimizer = build_optimizer(args, model)

args: what Megatron's command line parser returns. Needs megatron-core, which is imported where it
is used.
"""

import gc
import logging
from argparse import Namespace
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

VOCAB_SIZE = 1024


def one_process(num_microbatches: int = 2, batch_size: int = 2) -> None:
    """Set up what Megatron needs even for one process; a second call does nothing.

    These are process groups, with a store in memory, and the number of microbatches.
    """
    from megatron.core import num_microbatches_calculator, parallel_state

    quiet()
    if not torch.distributed.is_initialized():
        one_rank = {"store": torch.distributed.HashStore(), "rank": 0, "world_size": 1}
        torch.distributed.init_process_group("nccl", **one_rank, device_id=torch.device("cuda", 0))
        parallel_state.initialize_model_parallel()
        global_batch_size = num_microbatches * batch_size
        num_microbatches_calculator.init_num_microbatches_calculator(
            0, None, global_batch_size, batch_size, 1
        )


def quiet() -> None:
    """Switch off Megatron's messages below errors, and the advice to install flash-attn."""
    torch.autograd.graph.set_warn_on_accumulate_grad_stream_mismatch(False)  # DDP has its stream
    logging.getLogger("megatron").setLevel(logging.ERROR)
    logging.getLogger("DotProductAttention").disabled = True


def build_model(
    args: Namespace, pre_process: bool = True, post_process: bool = True
) -> tuple[nn.Module, Any]:
    """The GPT in bfloat16 on the GPU, and its TransformerConfig; args.seed decides its weights.

    The random states that Megatron keeps are generators, so that a graph can use them. A stage of a
    pipeline has the embedding only with pre_process, and the head and loss only with post_process.
    """
    from megatron.core import tensor_parallel
    from megatron.core.distributed import finalize_model_grads
    from megatron.core.models.gpt import GPTModel, gpt_layer_specs
    from megatron.core.transformer import cuda_graphs
    from megatron.training.arguments import core_transformer_config_from_args

    torch.manual_seed(args.seed)
    tracker = {"te_rng_tracker": cuda_graphs.HAVE_TE_GRAPHS, "use_cudagraphable_rng": True}
    tensor_parallel.model_parallel_cuda_manual_seed(args.seed, **tracker, force_reset_rng=True)
    config = core_transformer_config_from_args(args)
    config.finalize_model_grads_func = finalize_model_grads
    if args.transformer_impl == "local":
        layer = gpt_layer_specs.get_gpt_layer_local_spec()
    else:
        layer = gpt_layer_specs.get_gpt_layer_with_transformer_engine_spec()
    ends = {"pre_process": pre_process, "post_process": post_process}
    model = GPTModel(config, layer, VOCAB_SIZE, args.max_position_embeddings, **ends)
    return model.cuda().bfloat16(), config


def wrap(args: Namespace, model: nn.Module, config: Any) -> nn.Module:
    """The model in Megatron's DistributedDataParallel, built on a side stream as in training.py.

    For full_iteration it is the stream of the capture: the autograd nodes that add up gradients
    run on the stream on which they were created. On the default stream the capture raises error 906
    (torch 2.11).
    """
    from megatron.core.distributed import DistributedDataParallel
    from megatron.core.full_cuda_graph import get_shared_capture_stream
    from megatron.training.training import get_megatron_ddp_config

    if config.cuda_graph_impl == "full_iteration":
        stream = get_shared_capture_stream()
    else:
        stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        ddp = DistributedDataParallel(config, get_megatron_ddp_config(args), model)
    torch.cuda.synchronize()
    return ddp


def build_optimizer(args: Namespace, model: nn.Module) -> Any:
    """Adam with float32 copies of the parameters and clipping.

    With args.optimizer_cuda_graph its step becomes a graph after args.cuda_graph_warmup_steps.
    """
    from megatron.core.optimizer import get_megatron_optimizer
    from megatron.core.optimizer.optimizer_cuda_graph import OptimizerCudaGraphWrapper
    from megatron.training.training import get_megatron_optimizer_config

    config, overrides = get_megatron_optimizer_config(args)
    optimizer = get_megatron_optimizer(config, [model], overrides)
    if args.optimizer_cuda_graph:
        warmup = args.cuda_graph_warmup_steps
        optimizer.step = OptimizerCudaGraphWrapper(optimizer.step, warmup)
    return optimizer


def make_microbatch(length: int = 256, batch_size: int = 2) -> dict[str, Tensor]:
    """Random tokens: input_ids, labels and position_ids, each (batch_size, length)."""
    tokens = torch.randint(VOCAB_SIZE, (batch_size, length + 1), device="cuda")
    return {
        "input_ids": tokens[:, :-1].clone(),
        "labels": tokens[:, 1:].clone(),
        "position_ids": torch.arange(length, device="cuda").repeat(batch_size, 1),
    }


def loss_func(token_losses: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """The loss of a microbatch, and what the schedule reports of it."""
    loss = token_losses.mean()
    return loss, {"lm loss": loss.detach().clone()}


def forward_step(data_iterator: Iterator, model: nn.Module) -> tuple[Tensor, Callable]:
    """What Megatron's schedule calls for each microbatch: the tokens' losses, and loss_func."""
    return model(**next(data_iterator), attention_mask=None), loss_func


def pool_mib() -> int:
    """The MiB that the private pools of graphs hold."""
    segments = torch.cuda.memory_snapshot()
    private = [one["total_size"] for one in segments if tuple(one["segment_pool_id"]) != (0, 0)]
    return sum(private) >> 20


def free_graphs(training: Any = None) -> None:
    """Release the graphs, results and static inputs that Megatron keeps in attributes of classes.

    training: has the model, and as te_graphs the TECudaGraphHelper or None. Its layers' graphs are
    cleared by hand: they keep the model alive through autograd, which Python's garbage collector
    cannot follow.
    """
    from megatron.core.full_cuda_graph import FullCudaGraphWrapper, StaticBufferLoader
    from megatron.core.optimizer.optimizer_cuda_graph import OptimizerCudaGraphWrapper
    from megatron.core.transformer import cuda_graphs

    if training is not None:
        for module in training.model.modules():
            if hasattr(module, "cudagraph_manager"):
                module.cudagraph_manager.cudagraph_runners.clear()
        if training.te_graphs and training.te_graphs.graphs_created():
            training.te_graphs.delete_cuda_graphs()
    cuda_graphs.delete_cuda_graphs()
    FullCudaGraphWrapper(None).reset_cuda_graph()
    StaticBufferLoader.static_buffers = {"training": [], "validation": []}
    OptimizerCudaGraphWrapper.cuda_graph = None
    OptimizerCudaGraphWrapper.curr_iteration = 0
    torch.cuda.set_stream(torch.cuda.default_stream())
    gc.enable()  # a capture that failed may have left it off
    gc.collect()
    torch.cuda.empty_cache()
