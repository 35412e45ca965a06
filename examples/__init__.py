"""Scripts to copy: each runs by itself, and needs torch alone.

graph_nodes: open a captured graph, and change what it does
"""
