"""What the course's graphs bring and what the course costs its user:  make bench

Variants   ladder: those of "Shorten a step to its kernel time"; originals: the loops of the
           examples the course grew from
Measured   steps: all of them
Written    report
Apart      agent: the training of an agent next to JAX, whose part is agent_jax
           (python -m benchmarks.agent)
           capture_rules: each rule of a capture, kept and broken
           (python -m benchmarks.capture_rules)
           broadcast: new weights from another GPU, under a graph (torchrun -m benchmarks.broadcast)
           decode_step: what was tried to shorten the decode step, by decode_variants
           (python -m benchmarks.decode_step)
           optimizers: which of PyTorch's optimizers and schedulers a graph gets right
           (python -m benchmarks.optimizers)
"""
