"""What the course's graphs bring and what the course costs its user:  make bench

Variants   ladder: those of "Shorten a step to its kernel time"; originals: the loops of the
           examples the course grew from
Measured   steps: all of them
Written    report
Apart      capture_rules: each rule of a capture, kept and broken
           (python -m benchmarks.capture_rules)
           ddp_overlap: what lets DDP's all-reduce overlap (torchrun -m benchmarks.ddp_overlap)
           decode_step: what brings the decode step near to the bandwidth limit
           (python -m benchmarks.decode_step)
           optimizers: which of PyTorch's optimizers and schedulers a graph gets right
           (python -m benchmarks.optimizers)
"""
