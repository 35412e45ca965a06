"""The models and inputs that the ten broken scripts of a lesson are given."""

import torch
from torch import nn


class Denoiser(nn.Module):
    """An image from noise (16, 8) and a dict of two conditions of that shape."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))

    def forward(self, noise: torch.Tensor, added: dict) -> torch.Tensor:
        """The image; added holds "text" and "size"."""
        parts = (noise, added["text"], added["size"])
        return sum(layer(part).tanh() for layer, part in zip(self.layers, parts, strict=True))


class Decoder(nn.Module):
    """Scores (1, 64) of the next token, from a token (1,), its position, and a cache of those
    before.
    """

    def __init__(self, most: int):
        super().__init__()
        self.tokens = nn.Embedding(64, 16)
        self.places = nn.Embedding(most, 16)
        self.head = nn.Linear(16, 64)
        self.register_buffer("cache", torch.zeros(most, 16))

    @torch.no_grad()
    def forward(self, token: torch.Tensor, position: torch.Tensor | int) -> torch.Tensor:
        """The scores of what follows the token; a position that is a tensor has shape (1,)."""
        if isinstance(position, int):
            position = torch.full_like(token, position)
        here = self.tokens(token) + self.places(position)
        self.cache.index_copy_(0, position, here)
        seen = torch.arange(len(self.cache), device="cuda") <= position
        return self.head(torch.where(seen, here @ self.cache.T, -torch.inf).softmax(1) @ self.cache)


class MaskedMeanNet(nn.Module):
    """The mean (8,) over the first count rows of (length, 8); count is a tensor."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))

    def forward(self, rows: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
        """The mean of the first count rows, each through the layers."""
        real = torch.arange(len(rows), device="cuda")[:, None] < count
        return torch.where(real, self.layers(rows), 0).sum(0) / count


def draw_rows(count: int = 1, size: float = 1.0) -> list[torch.Tensor]:
    """`count` random tensors, (16, 8) each, multiplied by size."""
    return [torch.randn(16, 8, device="cuda") * size for _ in range(count)]


def training(
    steps: int, *middle: nn.Module, rate: float = 0.1, momentum: float = 0.9, spikes: bool = False
) -> tuple:
    """A model, its optimizer, and batches.

    With spikes, the third target is a thousand times too large, and the sixth is infinite.
    """
    model = nn.Sequential(nn.Linear(8, 16), *middle, nn.Tanh(), nn.Linear(16, 8)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), rate, momentum=momentum)
    size_of = {2: 1000.0, 5: torch.inf} if spikes else {}
    sizes = [size_of.get(number, 1.0) for number in range(steps)]
    return model, optimizer, [(*draw_rows(), *draw_rows(size=size)) for size in sizes]


def training_in_parts(steps: int) -> tuple:
    """A model of three parts, its optimizer, and batches."""
    parts = [nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(3)]
    model = nn.Sequential(parts[0], nn.Sequential(*parts[1], *parts[2]), nn.Linear(8, 8)).cuda()
    return (
        model,
        torch.optim.SGD(model.parameters(), 0.5),
        [(*draw_rows(), *draw_rows()) for _ in range(steps)],
    )


def decoder_and_tokens(steps: int) -> tuple:
    """A decoder, a first token, an end token, and the largest number of tokens, which is steps.

    The end token is the last one of the text that does not occur earlier in it.

    The text of the first token is wrong from its second one on if the position stays at 0.
    """
    model = Decoder(steps).cuda()
    starts = torch.randperm(64, device="cuda").split(1)
    first = next(start for start in starts if _position_matters(model, start))
    text = decode_greedily(model, first, None, steps)
    model.cache.zero_()
    unseen = [token for number, token in enumerate(text) if token not in text[:number]]
    return model, first, unseen[-1], steps


def _position_matters(model: Decoder, first: torch.Tensor) -> bool:
    """Whether the second token at position 0 is neither eager's nor the first one again."""
    second, third = decode_greedily(model, first, None, 2)
    stays = model(torch.full_like(first, second), 0).argmax(-1)
    return stays.item() not in (second, third)


def scorer_and_requests(steps: int) -> tuple:
    """A scorer, and a request for each step, all of different lengths."""
    lengths = [1 + length for length in torch.randperm(64)[:steps].tolist()]
    return MaskedMeanNet().cuda(), [torch.randn(length, 8, device="cuda") for length in lengths]


def denoiser_and_calls(steps: int) -> tuple:
    """A denoiser, and a dict of its arguments for each step."""
    calls = [dict(zip(("noise", "text", "size"), draw_rows(3), strict=True)) for _ in range(steps)]
    return Denoiser().cuda(), [{"noise": call.pop("noise"), "added": call} for call in calls]


def ensemble_and_inputs(steps: int) -> tuple:
    """Three models, and an input for each step."""
    layers = [[nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8)] for _ in range(3)]
    return [nn.Sequential(*each).cuda() for each in layers], draw_rows(steps)


def decode_greedily(model: Decoder, first: torch.Tensor, end: int | None, most: int) -> list[int]:
    """The most likely token after each one, up to the end."""
    token, text = first, []
    while len(text) < most and end not in text:
        token = model(token, len(text)).argmax(-1)
        text.append(token.item())
    return text
