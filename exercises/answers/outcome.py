"""What a check says of an answer."""

import html
from dataclasses import dataclass

# of the mark, on a light and on a dark page: right, close, wrong, still to do
COLOURS = {"✓": "#1a8f4c", "~": "#b0700a", "✗": "#dc4040", "○": "#7c7c7c"}


@dataclass(frozen=True)
class Problem:
    """What is wrong with an answer: what is seen, and the repair; false if nothing is wrong."""

    symptom: str = ""
    repair: str = ""
    on_gpu: bool = False

    def __bool__(self):
        return bool(self.symptom)

    def __str__(self):
        return f"{self.symptom} {self.repair}".rstrip()


class Outcome:
    """What a check found: true if the answer is right; shows its message as a cell's last value."""

    def __init__(self, right: bool, message: str):
        self.right = bool(right)
        self.message = message if message[:1] in COLOURS else f"{'✓' if right else '✗'} {message}"

    def __bool__(self):
        return self.right

    def __repr__(self):
        return self.message

    def _repr_html_(self):
        sign, text = self.message[0], html.escape(self.message[1:])
        style = "margin: 0; white-space: pre-wrap"
        return f'<pre style="{style}"><b style="color: {COLOURS[sign]}">{sign}</b>{text}</pre>'
