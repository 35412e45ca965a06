"""Put back what a step changed: restore names what there is and puts it back, reachable follows
what the step can get at, tensor_memory keeps and compares the memory of tensors."""

from capturable.restore.restore import NotRestored, Restore

__all__ = ["NotRestored", "Restore"]
