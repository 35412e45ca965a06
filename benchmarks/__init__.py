"""What the course's graphs bring, measured.

Commands   capture_rules: rules of a capture, kept and broken
           (python -m benchmarks.capture_rules)
           optimizers: which of PyTorch's optimizers and schedulers a graph gets right
           (python -m benchmarks.optimizers)
"""
