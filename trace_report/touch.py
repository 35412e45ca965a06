"""The frame of a picture that one can touch: its style, its scripts, and its data.

A page holds what stands still, the data and some kB of style and script, and asks no other machine
for anything. Where scripts do not run, one sees what stands still.
"""

import json
import re
from html import escape
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


def touchable_html(kind: str, still: str, data: Any, folder: Path = HERE) -> str:
    """A picture as HTML: still (HTML) stands where no script runs; elsewhere the folder's kind.js
    draws the data in its place, in the style of kind.css.
    """
    known = json.dumps(data, separators=(",", ":"), allow_nan=False)
    known = escape(known, quote=False).replace("'", "&#39;")
    figure = f"<figure class='{kind}' data-{kind}='{known}'>{still}</figure>"
    files = HERE / "touch.css", folder / f"{kind}.css", HERE / "touch.js", folder / f"{kind}.js"
    # without indents: pages stay small
    texts = [re.sub(r"\n\s+", "\n", file.read_text(encoding="utf-8")) for file in files]
    style, scripts = "\n".join(texts[:2]), texts[2:]
    code = "\n".join(["(() => {", *scripts, f"touch(document.currentScript, {kind});", "})();"])
    return f"<div class='touch'><style>{style}</style>{figure}<script>{code}</script></div>"
