"""The few shapes that the pictures are made of, as SVG text without styles of its own: it may lie
in any page.
"""

import math
from html import escape
from itertools import pairwise
from urllib.parse import quote

FONT = "DejaVu Sans, Helvetica, Arial, sans-serif"


def rectangle(x: float, y: float, width: float, height: float, colour: str) -> str:
    """A filled rectangle, at least a third of a pixel wide, so that it is seen."""
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 0.35):.2f}" height="{height:.1f}" '
        f'fill="{colour}"/>'
    )


def text(
    x: float, y: float, words: str, size: int = 14, colour: str = "#222222", more: str = ""
) -> str:
    """A line of text that begins at (x, y)."""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{colour}" '
        f"{more}>{escape(words)}</text>"
    )


def step_area(points: list[tuple[float, float]], bottom: float, colour: str) -> str:
    """The steps from point to point, filled down to bottom."""
    path = f"M{points[0][0]:.1f} {bottom:.1f}"
    path += "".join(f"V{y:.1f}H{x:.1f}" for (_, y), (x, _) in pairwise(points))
    return f'<path d="{path}V{bottom:.1f}Z" fill="{colour}"/>'


def drawing(width: int, height: int, title: str, *parts: str) -> str:
    """The whole picture, on white."""
    ground = rectangle(0, 0, width, height, "#FFFFFF")
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    opening = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" font-family="{FONT}">'
    return f"{opening}<title>{escape(title)}</title>{ground}{''.join(parts)}</svg>"


def outlined_box(x: float, y: float, width: float, height: float, fill: str, edge: str) -> str:
    """A rectangle with an edge."""
    size = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"'
    return f'<rect {size} rx="3" fill="{fill}" stroke="{edge}" stroke-width="2"/>'


def arrow(start: tuple[float, float], end: tuple[float, float], colour: str = "#222222") -> str:
    """A straight arrow."""
    (x, y), (to_x, to_y) = start, end
    angle = math.degrees(math.atan2(to_y - y, to_x - x))
    head = f'<path d="M0 0L-9 -4.5L-9 4.5Z" fill="{colour}"'
    return (
        f'<path d="M{x:.1f} {y:.1f}L{to_x:.1f} {to_y:.1f}" stroke="{colour}" stroke-width="2"/>'
        f'{head} transform="translate({to_x:.1f} {to_y:.1f}) rotate({angle:.0f})"/>'
    )


def img_tag(picture: str, said: str, more: str = "") -> str:
    """A picture as an image, which no page refuses, with its text for those who do not see it."""
    # texts have no quotes: they are escaped
    source = quote(picture.replace('"', "'"), safe=" =:/;()<>'")
    return f'<img {more}alt="{escape(said)}" src="data:image/svg+xml,{source}">'
