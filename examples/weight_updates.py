"""New weights for the small Llama, written by another process into the memory of this one.

    processes = torch.multiprocessing.spawn(write_weights, args=(shared,), join=False)
    processes.join()

shared is a dict of the captured model's weights. torch.multiprocessing passes CUDA tensors as
handles (CUDA IPC), not as copies: the other process writes to the addresses that the graph reads.
"""

import time

import torch
from torch import Tensor

from examples import small_llama
from examples.decoder import Decoder

PAUSE_S = 0.005  # after each weight, so that somebody can watch the update


def fine_tuned(model: Decoder, seed: int = 1) -> dict[str, Tensor]:
    """A state_dict of new weights, the model's own plus noise; each call returns the same bits."""
    weights = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
    for name, weight in model.named_parameters():
        generator = torch.Generator(weight.device).manual_seed(seed)
        noise = torch.randn(weight.shape, device=weight.device, generator=generator)
        weights[name] += 0.05 * noise
    return weights


def write_weights(process: int, shared: dict[str, Tensor]) -> None:
    """In another process: copy the fine-tuned weights into shared, a CUDA tensor per name.

    process: its number, which torch.multiprocessing.spawn passes.
    """
    model, _ = small_llama.load("model", "cuda")
    new = fine_tuned(model)
    for name, weight in shared.items():
        weight.copy_(new[name])
        torch.cuda.synchronize()
        time.sleep(PAUSE_S)
    del weight
    shared.clear()  # held until the end of the process, they would never be freed
