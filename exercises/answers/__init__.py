"""What is wrong with an answer, in words.

solutions: the exercise and its solution; outcome: what a check says; comparison: where two results
    part
leftovers: what it changes for the whole process; errors: what it raised
runs: the answer tried on the stand-in and the GPU
launches: what it launches; tensors: whether its results are the expected ones
wrong: what may be wrong; graph_use: what is wrong with its graphs
"""
