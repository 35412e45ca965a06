"""The icons that the site's pages use, as a style sheet of some kB.

The theme brings all of Font Awesome as a script of 1.5 MB, which replaces them as a page opens. Its
drawings (CC BY 4.0) are taken from there, once, when the site is built.
"""

import re
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import quote

SCRIPT = re.compile(r'\s*<script defer src="[^"]*/?scripts/fontawesome\.js[^"]*"></script>')
USED = re.compile(r'<i class="([^"]*\bfa-[^"]*)"')
LOOKS = ("fa-solid", "fa-brands", "fa-regular", "fa-lg", "fa-fw")  # no names of icons
LICENCE = "/* icons of Font Awesome Free (fontawesome.com/license/free, CC BY 4.0) */\n"


def used_icons(pages: Iterable[str]) -> set[str]:
    """The icons that pages use, such as moon."""
    classes = {one for page in pages for found in USED.findall(page) for one in found.split()}
    return {one[3:] for one in classes if one.startswith("fa-") and one not in LOOKS}


def icon_svg(name: str, script: str) -> str:
    """An icon as SVG, from Font Awesome's script. Raises LookupError for one that it has not."""
    called = re.escape(name)
    own = rf'(?<![\w-])"?{called}"?:\[(\d+),(\d+),\[[^\]]*\],"\w+","([^"]+)"\]'
    alias = rf'"?[\w-]+"?:\[(\d+),(\d+),\[[^\]]*"{called}"[^\]]*\],"\w+","([^"]+)"\]'
    found = re.search(own, script) or re.search(alias, script)
    if not found:
        raise LookupError(f"Font Awesome has no icon {name!r}.")
    width, height, path = found.groups()
    size = f'viewBox="0 0 {width} {height}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}><path d="{path}"/></svg>'


def icon_style_sheet(used: Iterable[str], script: str) -> str:
    """The style sheet of these icons; course.css says how one is shown."""
    icons = {name: quote(icon_svg(name, script)) for name in sorted(used)}
    rules = [
        f'i.fa-{name} {{\n  --icon: url("data:image/svg+xml,{icon}");\n}}\n'
        for name, icon in icons.items()
    ]
    return "\n".join([LICENCE, *rules])


def replace_icon_script(html: Path) -> None:
    """Take the script out of a built site and put the style sheet in its place."""
    program = html / "_static/scripts/fontawesome.js"
    pages = {path: path.read_text(encoding="utf-8") for path in html.rglob("*.html")}
    pages = {path: text for path, text in pages.items() if SCRIPT.search(text)}
    text = icon_style_sheet(used_icons(pages.values()), program.read_text(encoding="utf-8"))
    (html / "_static/icons.css").write_text(text, encoding="utf-8")
    for path, page in pages.items():
        root = "../" * (len(path.relative_to(html).parts) - 1)
        link = f'\n  <link rel="stylesheet" href="{root}_static/icons.css">'
        path.write_text(SCRIPT.sub(link, page), encoding="utf-8")
    for file in program.parent.glob("fontawesome.js*"):
        file.unlink()
