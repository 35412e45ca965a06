"""Find what a CUDA graph capture would refuse or freeze, and explain what it said. Needs torch alone.

preflight looks at a step before its capture: operators, listening and bookkeeping log what it does, rules judge
it, undo puts everything back. explain says what a message means, from the causes; it needs not even torch.
"""
