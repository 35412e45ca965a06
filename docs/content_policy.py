"""A Content-Security-Policy in each page of the site, as a meta tag: it needs no server's headers.

Only scripts that the theme or the course itself put into pages may run, by their hashes; a script
that came with a recording has none. Pages load nothing from elsewhere.
"""

import base64
import hashlib
import re
from collections.abc import Iterable
from pathlib import Path

from course.touch import HERE, framed

SCRIPT = re.compile(r"<script(?![^>]*\bsrc=)[^>]*>(.*?)</script>", re.DOTALL)
HANDLER = re.compile(r'\son\w+="([^"]*)"')
LESSONS = "notebooks"  # the folder of the pages that show recorded outputs


def protect(html: Path) -> None:
    """Give every page of the built site its policy."""
    pages = sorted({*html.rglob("*.html")} - {*html.glob("_static/**/*")})
    written = [path for path in pages if LESSONS not in path.relative_to(html).parts]
    texts = [path.read_text(encoding="utf-8") for path in written]
    known = inline(texts) | touched()
    # the search reads other pages, handlers and all
    handlers = {code for text in texts for code in HANDLER.findall(text)}
    for path in pages:
        text = path.read_text(encoding="utf-8")
        own = f"DOCUMENTATION_OPTIONS.pagename = '{path.relative_to(html).with_suffix('')}';"
        allowed = (inline([text]) & (known | {own})) | handlers
        tag = f'<meta http-equiv="Content-Security-Policy" content="{policy(allowed)}">'
        path.write_text(text.replace("<head>", f"<head>\n    {tag}", 1), encoding="utf-8")


def inline(pages: Iterable[str]) -> set[str]:
    """The scripts and handlers of events that stand in these pages."""
    return {code for text in pages for find in (SCRIPT, HANDLER) for code in find.findall(text)}


def touched() -> set[str]:
    """The scripts of the course's own pictures."""
    kinds = [path.stem for path in HERE.glob("*.js") if path.stem != "touch"]
    return inline(framed(kind, "") for kind in kinds)


def policy(allowed: set[str]) -> str:
    """What a page may do: run these scripts and handlers of its own, and load the site's files."""
    hashes = " ".join(sorted(f"'sha256-{_hash(code)}'" for code in allowed))
    return "; ".join(
        [
            "default-src 'self'",
            f"script-src 'self' 'unsafe-hashes' {hashes}",
            "style-src 'self' 'unsafe-inline'",
            "img-src 'self' data:",
            "font-src 'self' data:",
            "object-src 'none'",
            "base-uri 'none'",
            "form-action 'self'",
        ]
    )


def _hash(code: str) -> str:
    return base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
