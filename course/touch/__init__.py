"""Pictures that one can touch: this is their frame, svg.py has their shapes, and each has a module
and a script.

timeline: a step, hovered over and zoomed into; capture: eager, capture and replay as time passes.

A saved notebook holds what stands still, the data and some kB of style and script, and asks no
other machine for anything. Where scripts do not run, as on GitHub or in a notebook that is not
trusted, one sees what stands still.
"""

import json
import re
from html import escape
from pathlib import Path
from typing import Any

from IPython.display import HTML

HERE = Path(__file__).parent


def touchable(kind: str, still: str, data: Any) -> HTML:
    """A picture: still (HTML) stands where no script runs; elsewhere kind.js draws the data in its
    place.
    """
    known = escape(json.dumps(data, separators=(",", ":")), quote=False).replace("'", "&#39;")
    return HTML(framed(kind, f"<figure class='{kind}' data-{kind}='{known}'>{still}</figure>"))


def framed(kind: str, figure: str) -> str:
    """A figure (HTML) with the style and the scripts that let one touch it, without their indents:
    pages stay small.
    """
    texts = [
        (HERE / name).read_text(encoding="utf-8")
        for name in ("touch.css", "touch.js", f"{kind}.js")
    ]
    style, *scripts = (re.sub(r"\n\s+", "\n", text) for text in texts)
    code = "\n".join(["(() => {", *scripts, f"touch(document.currentScript, {kind});", "})();"])
    return f"<div class='touch'><style>{style}</style>{figure}<script>{code}</script></div>"
