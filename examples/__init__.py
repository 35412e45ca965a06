"""Code to copy, which needs torch alone (and the Triton and cuda.bindings that come with it).

train_mlp_eager, train_mlp, mlp_step: a training script as many people have it, and with a graph
profile_step: time a step and profile it
train_gpt: train a small GPT, with each training step in one graph; it reads shakespeare.txt
graphed_trainer: transformers' Trainer with each training step in one graph
graphed_lightning: the same for Lightning
fill_a_pool: which lines fill the memory pool of a graph
check_step: a step that can be captured, and whether its graph trains the same
choose_api: five questions to a trace, and the method that fits a training step
loop_in_graph: linear equations solved in one launch, by a loop that stops by itself
many_steps_one_graph: train with ten steps in one graph
share_a_pool: graphs for several batch sizes in one memory pool
pad_to_buckets: graphs for sequences of many lengths, and results read one batch later
graph_blocks: train with two blocks of a model in graphs
compile_and_capture: train with compiled kernels in one graph
augment_in_graph: train with augmentation inside the graph
train_fp16: train in float16, with a prefetcher and a loader with workers
train_agent: train an agent with PPO, environments included, in one graph
train_agent_off_policy: train one with TD3 and a replay buffer, in two graphs
train_fp8: train Transformer Engine's layers in FP8, with graphs
order_microbatches: its graphs of a pipeline's microbatches, and the order of their replays
train_ddp: train on several GPUs under DistributedDataParallel, a graph on each
compare_ddp: DDP and FSDP2 on several GPUs, eager and in a graph
overlap_ddp: which settings let DDP's all-reduces overlap the backward pass
split_decoder: a decoder on two GPUs, each with half of every layer
compare_splits: the same by NCCL, parallelize_module and one-shot all-reduces, next to one GPU
graph_experts: a mixture of experts in a graph, tested bit for bit and trained
expert_parallel: its experts on several GPUs, with the all-to-alls in the graphs
sample_diffusion_model: train a small diffusion model and sample it, both with graphs
decode_transformers: a model of the transformers package decodes in one graph
decoder: a language model with a static key-value cache, ready for a graph
serving: requests in slots, and a step of mixed lengths
serve_decoder: a server of graphs, which schedules one step ahead
triton_decoder: the same decoder's step for one sequence, in fused Triton kernels
small_llama: a small trained decoder that writes text, and its drafter
speculative_decoding: draft, verify and accept in one graph, with the two
train_small_llama: how the two were trained
adapters: a linear layer with an adapter of its own for each row
weight_updates: an engine with a graph, and a trainer in another process that sends it weights
rollouts: texts that the small Llama samples, and a policy that learns from them
transformers_llama: the decoder's weights under the names of transformers' Llama
repeatability: does a step repeat its bits, and if not, which operator does not?
megatron_gpt: train Megatron's GPT from Megatron's command line, with or without graphs
graph_audit: all graphs of a process, and who captured them
graph_nodes: open a captured graph, compare it with another one, and change what it does
address_range: memory that is given back and taken again at the same addresses
"""
