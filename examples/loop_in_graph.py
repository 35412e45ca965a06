"""Linear equations solved in one launch: a CUDA graph with a loop that stops by itself.

    python examples/loop_in_graph.py

It needs a CUDA GPU and PyTorch 2.15. Numbered lines are those that the loop needs.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor


@contextmanager
def while_node(graph: torch.cuda.CUDAGraph, going: Tensor) -> Iterator[None]:
    """Capture the block as a body that repeats while going, a bool tensor without dimensions, is
    True. The block has to update going in place.
    """
    graph.begin_capture_to_while_node(going)
    try:
        yield
        graph.set_conditional_handle_for_current_node(going)  # 1. last, from the new state
    finally:
        graph.end_capture_to_conditional_node()  # 2. also if the block raises an error


def make_solver(matrix: Tensor, tolerance: float, limit: int) -> Callable[[Tensor], tuple]:
    """Solve matrix @ x = b by conjugate gradients; matrix (n, n) is symmetric positive definite.

    The function that is returned takes b (n,), and returns x and the number of iterations.
    """
    b = torch.zeros(len(matrix), device="cuda")
    matrix @ b  # the warm-up: the body uses cuBLAS
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        x = torch.zeros_like(b)  # 3. created in the capture: each replay begins anew
        residual = b.clone()
        direction = b.clone()
        error = residual.dot(residual)
        count = torch.zeros((), dtype=torch.long, device="cuda")
        enough = tolerance**2 * error
        going = error > enough
        with while_node(graph, going):
            product = matrix @ direction
            alpha = error / direction.dot(product)
            x += alpha * direction  # 4. what the next iteration reads is written in place
            residual -= alpha * product
            new_error = residual.dot(residual)
            direction.mul_(new_error / error).add_(residual)
            error.copy_(new_error)
            count += 1
            torch.logical_and(error > enough, count < limit, out=going)  # 5. with a limit

    def solve(new_b: Tensor) -> tuple[Tensor, Tensor]:
        b.copy_(new_b)
        graph.replay()
        return x.clone(), count.clone()

    solve.kept = matrix  # 6. a graph holds addresses only
    return solve


def main() -> None:
    """Solve three systems, and compare with torch.linalg.solve."""
    torch.manual_seed(0)
    factor = torch.randn(512, 512, device="cuda") / 512**0.5
    matrix = factor @ factor.T + torch.eye(512, device="cuda")
    solve = make_solver(matrix, tolerance=1e-5, limit=100)
    for scale in (1.0, 0.0, 1e3):
        b = scale * torch.randn(512, device="cuda")
        x, count = solve(b)
        close = torch.allclose(x, torch.linalg.solve(matrix, b), atol=1e-4 * scale)
        print(f"{count.item()} iterations, right: {close}")


if __name__ == "__main__":
    main()
