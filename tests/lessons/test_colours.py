"""What lessons say about the colours of their charts is true in the light and the dark theme."""

import ast
import colorsys
import re

import pytest
from IPython.core.inputtransformer2 import TransformerManager
from matplotlib.colors import to_rgb

from helpers.charts import COLOURS
from tests.support import contrast
from tests.support.notebooks import ALL, code, prose

ENDS = (15, 45, 70, 170, 240, 300, 345)  # where a hue ends on the wheel, in degrees
HUES = dict(zip(("red", "orange", "yellow", "green", "blue", "purple", "pink"), ENDS, strict=True))
TURNED_OVER = ("black", "white", "dark", "light", "bright", "pale")  # the dark theme swaps them
WORDS = re.compile(rf"\b({'|'.join([*HUES, *TURNED_OVER])})(?:er|ish)?\b", re.IGNORECASE)


def hue(colour):
    """What a reader would call a colour; "" for what is nearly black, white or grey."""
    angle, lightness, saturation = colorsys.rgb_to_hls(*colour)
    if saturation < 0.2 or not 0.25 < lightness < 0.75:
        return ""
    return next((name for name, end in HUES.items() if angle * 360 < end), "red")


def same_in_both_themes():
    """The names that a colour of the charts has on white and when the dark theme turns it over."""
    pairs = [(hue(to_rgb(own)), hue(contrast.in_dark(to_rgb(own)))) for own in COLOURS.values()]
    return {light for light, dark in pairs if light and light == dark}


def said(sources):
    """The phrases in code: titles, labels, printed sentences; a word alone is an argument."""
    for source in sources:
        python = TransformerManager().transform_cell(re.sub(r"^%%.*", "", source))
        for node in ast.walk(ast.parse(python)):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
                yield node.value


def contradicted(texts):
    """The words for colours that one of the themes contradicts."""
    found = {word.lower() for text in texts for word in WORDS.findall(text)}
    return found - same_in_both_themes()


@pytest.mark.parametrize("path", ALL, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_no_theme_contradicts_the_words_for_colours(path):
    wrong = contradicted([prose(path), *said(code(path))])
    assert not wrong, f"a theme shows other colours: name what is drawn instead of {sorted(wrong)}"


def test_words_that_turn_over_are_found():
    cell = "%%gpu\naxes.set(xlabel=f'{unit} per token (black: the kernels)', color='white')"
    assert contradicted(said([cell])) == {"black"}
    found = contradicted(["Dark: in use. The green bars are equal, the red ones are not."])
    assert found == {"dark", "red"}
