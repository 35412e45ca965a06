"""What the course's graphs bring, measured.

Pages      report: their tables, and where they were measured
Commands   capture_rules: each rule of a capture, kept and broken
           (python -m benchmarks.capture_rules)
           decode_step: what brings the decode step near to the bandwidth limit
           (python -m benchmarks.decode_step)
           optimizers: which of PyTorch's optimizers and schedulers a graph gets right
           (python -m benchmarks.optimizers)
"""
