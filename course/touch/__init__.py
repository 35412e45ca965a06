"""Pictures that one can touch: static, and where scripts may run, moving and answering.

A saved notebook holds the picture, its data and a few kB of script, and asks no other machine for anything. Where its
scripts do not run, as in a notebook that is not trusted, the picture is what one sees.
"""

import base64
import json
from html import escape
from pathlib import Path
from typing import Any

from IPython.display import HTML

HERE = Path(__file__).parent


def touchable(kind: str, picture: str, text: str, data: Any) -> HTML:
    """A picture (SVG) with its text for those who do not see it, and the data that kind.js works on."""
    svg = base64.b64encode(picture.encode()).decode()
    style, *scripts = ((HERE / name).read_text(encoding="utf-8") for name in ("touch.css", "touch.js", f"{kind}.js"))
    known = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
    call = f"touchPicture(document.currentScript.previousElementSibling, {known}, {kind})"
    image = f'<img alt="{escape(text)}" src="data:image/svg+xml;base64,{svg}">'
    code = "\n".join(["(() => {", *scripts, call, "})();"])
    return HTML(f'<style>{style}</style><div class="touch">{image}</div><script>{code}</script>')
