"""Scripts to copy: each runs by itself, and needs torch alone.

train_gpt: a training of a small GPT, each step of the optimizer one graph; it reads shakespeare.txt
decoder: a language model with a static cache, ready for a graph
graph_nodes: open a captured graph, and change what it does
"""
