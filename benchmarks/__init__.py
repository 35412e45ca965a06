"""What the course's graphs bring, measured.

Commands   optimizers: which of PyTorch's optimizers and schedulers a graph gets right
           (python -m benchmarks.optimizers)
"""
