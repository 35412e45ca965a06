"""Arguments and results as trees: their tensors, and the same tree with other ones.

torch.utils._pytree takes trees of any kind, which needs
far longer; operators know these three kinds alone.
"""

import torch

SEQUENCES = tuple, list  # written as a union, it would be made anew at every call


def tensors_in(*trees):
    """The tensors in an operator's arguments or results."""
    found = []
    for tree in trees:
        if isinstance(tree, torch.Tensor):
            found.append(tree)
        elif isinstance(tree, SEQUENCES):
            found += tensors_in(*tree)
        elif isinstance(tree, dict):
            found += tensors_in(*tree.values())
    return found


def mapped(change, tree, kind=torch.Tensor):
    """The same arguments or results with change(tensor) in place of each tensor, or of each object
    of a kind.
    """
    if isinstance(tree, kind):
        return change(tree)
    if isinstance(tree, dict):
        return {name: mapped(change, part, kind) for name, part in tree.items()}
    if isinstance(tree, SEQUENCES):
        parts = [mapped(change, part, kind) for part in tree]
        return parts if isinstance(tree, list) else tuple(parts)
    return tree
