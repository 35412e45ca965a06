"""Scripts to copy: each runs by itself, and needs torch alone.

decoder: a language model with a static cache, ready for a graph
graph_nodes: open a captured graph, and change what it does
"""
