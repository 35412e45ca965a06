"""Scripts to copy: each runs by itself, and needs torch alone.

train_gpt: a small language model, trained with each step of the optimizer as one CUDA graph
shakespeare.txt, which it reads: plays of William Shakespeare, in the public domain
"""
