"""Find what a CUDA graph capture would refuse or freeze, and explain what it said. Needs torch alone.

capturable.preflight looks at a step before its capture; capturable.explain needs not even torch.
"""
