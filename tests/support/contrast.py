"""How well colours are told apart, as WCAG 2 counts it, on the light and on the dark ground."""

import base64
import io
from collections.abc import Sequence

import numpy as np
from matplotlib.colors import to_rgb
from PIL import Image

RGB = tuple[float, float, float]
INVERTED = 0.93  # turns white into the ground of the dark theme, #121212
TURN = ((-0.574, 1.43, 0.144), (0.426, 0.43, 0.144), (0.426, 1.43, -0.856))  # hue-rotate(180deg)


def luminance(colour: Sequence[float]) -> float:
    """The relative luminance of an sRGB colour, its parts from 0 to 1."""
    parts = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in colour
    ]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), parts, strict=True))


def ratio(one: Sequence[float], other: Sequence[float]) -> float:
    """The contrast of two colours, from 1 to 21: text wants 4.5, a fill beside its ground 3."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def in_dark(colour: Sequence[float]) -> RGB:
    """What the style sheets' filter makes of a colour: invert(0.93) hue-rotate(180deg)."""
    inverted = [INVERTED + part * (1 - 2 * INVERTED) for part in colour]
    turned = [sum(a * b for a, b in zip(row, inverted, strict=True)) for row in TURN]
    red, green, blue = (min(max(part, 0.0), 1.0) for part in turned)
    return red, green, blue


def on_both(colour: str) -> tuple[float, float]:
    """A colour's contrast to the ground of a chart: on white, and in the dark theme."""
    own, white = to_rgb(colour), to_rgb("white")
    return ratio(own, white), ratio(in_dark(own), in_dark(white))


def fills(png: str, least: int = 60) -> list[str]:
    """The colours of a chart's areas but white, as #rrggbb: edges of letters and lines are none.

    least: how many pixels lie amid others of their colour.
    """
    pixels = np.asarray(Image.open(io.BytesIO(base64.b64decode(png))).convert("RGB")).astype(int)
    colours = pixels @ (65536, 256, 1)
    amid = np.ones_like(colours[1:-1, 1:-1], dtype=bool)
    for down in (0, 1, 2):
        for right in (0, 1, 2):
            height, width = colours.shape
            beside = colours[down : height - 2 + down, right : width - 2 + right]
            amid &= beside == colours[1:-1, 1:-1]
    found, counts = np.unique(colours[1:-1, 1:-1][amid], return_counts=True)
    large = found[(counts >= least) & (found != 0xFFFFFF)]
    return [f"#{colour:06x}" for colour in large]
