"""How well colours are told apart, as WCAG 2 counts it, on the light and on the dark ground; and
recorded charts in colours that are told apart from white.
"""

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


# For charts recorded before helpers.charts had its colours of now: fills below 3 : 1 on white, and
# host ranges that are too light for the names in them, as the site shows them.
SHADES = {
    "#E69F00": "#C87A00",  # launches
    "#56B4E9": "#2A8FD0",  # the graph
    "#4095C5": "#0072B2",  # host ranges, drawn at three quarters
    "#FF7F0E": "#C75B00",  # matplotlib's second colour
}
GREYS = {"#CCCCCC": "#767676", "#DDDDDD": "#949494"}  # waiting, and memory that is free
MANY = 400  # pixels: fewer of a grey are edges of letters


def in_shades(png: str) -> str:
    """A recorded chart (PNG, base64) with the fills of SHADES and GREYS in their darker shades.

    The pixels between such a fill and white, at its edges, follow it.
    """
    image = Image.open(io.BytesIO(base64.b64decode(png)))
    pixels = np.asarray(image.convert("RGB")).astype(float)
    shown = pixels.copy()
    for old, new in SHADES.items():
        known, wanted = (255 * np.array(to_rgb(colour)) - 255 for colour in (old, new))
        share = ((pixels - 255) @ known) / (known @ known)  # 0 is white, 1 the fill
        near = np.abs(pixels - 255 - share[..., None] * known).max(axis=-1) < 3
        own = near & (share > 0.1) & (share < 1.02)
        shown[own] = 255 + np.minimum(share[own], 1)[:, None] * wanted
    for old, new in GREYS.items():
        own = (pixels == 255 * np.array(to_rgb(old))).all(axis=-1)
        if own.sum() > MANY:
            shown[own] = 255 * np.array(to_rgb(new))
    if (shown == pixels).all():
        return png
    written = io.BytesIO()
    Image.fromarray(shown.round().astype(np.uint8)).save(written, "PNG", optimize=True)
    return base64.b64encode(written.getvalue()).decode()


def shaded(text: str) -> str:
    """A recorded picture's data with the colours of SHADES and GREYS in their darker shades."""
    for old, new in (SHADES | GREYS).items():
        text = text.replace(old, new)
    return text


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
