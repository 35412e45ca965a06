"""What a check says of an answer."""

import html

# of the mark, on a light and on a dark page: right, close, wrong, still to do
COLOURS = {"✓": "#1a8f4c", "~": "#b0700a", "✗": "#dc4040", "○": "#7c7c7c"}


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
