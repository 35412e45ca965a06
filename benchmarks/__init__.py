"""What the course's graphs bring, measured.

Variants   ladder: those of "Shorten a step to its kernel time"
Pages      report: their tables, and where they were measured
Commands   capture_rules: each rule of a capture, kept and broken
           (python -m benchmarks.capture_rules)
           ddp_overlap: what lets DDP's all-reduce overlap (torchrun -m benchmarks.ddp_overlap)
           decode_step: what brings the decode step near to the bandwidth limit
           (python -m benchmarks.decode_step)
           optimizers: which of PyTorch's optimizers and schedulers a graph gets right
           (python -m benchmarks.optimizers)
"""
