"""Print the core course as one PDF:  python -m docs.book [lesson ...]

Sphinx puts the lessons' pages on one (its builder singlehtml), and Chromium prints it. The PDF is
docs/_build/book/cuda-graphs.pdf.
"""

import shutil
import subprocess
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

from course.lessons import PARTS, by_parts, lesson_file, unnumbered
from course.paths import ROOT
from docs.pages import write_pages

BUILD = ROOT / "docs/_build/book"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
PRINT = """
pre { font-size: 85%; white-space: pre-wrap; overflow-wrap: anywhere }
pre, table, .cell, div[class*=highlight] { break-inside: auto }
img, svg, tr { break-inside: avoid }
h1, h2, h3 { break-after: avoid }
section > section > h1 { break-before: page }
"""
FOOT = (
    '<div style="font-size: 8px; width: 100%; text-align: center">'
    '<span class="pageNumber"></span></div>'
)


def book(names: list[str], build: Path = BUILD) -> Path:
    """Print these lessons into one PDF, and return its path.

    Raises subprocess.CalledProcessError if Sphinx cannot build the pages, FileNotFoundError if
    there is no Chromium to print them.
    """
    program = browser()
    if program is None:
        raise FileNotFoundError("make pdf needs Chromium, and finds none: install it.")
    source, html = build / "source", build / "html"
    write_pages(source)
    own = [source / "notebooks" / lesson_file(name).name for name in names]
    for written in [*source.rglob("*.md"), *source.rglob("*.ipynb")]:
        if written not in own:
            written.unlink()
    (source / "index.md").write_text(contents(names), encoding="utf-8")
    settings = ["-D", "suppress_warnings=toc.not_included,toc.excluded,myst.xref_missing,ref"]
    command = [sys.executable, "-m", "sphinx", "--quiet", "-b", "singlehtml", "-c", "docs"]
    subprocess.run([*command, *settings, str(source), str(html)], cwd=ROOT, check=True)
    target = build / "cuda-graphs.pdf"
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        page = chromium.new_page(color_scheme="light")
        page.goto((html / "index.html").as_uri(), wait_until="load")
        page.emulate_media(media="print")
        page.add_style_tag(content=PRINT)
        page.pdf(
            path=target,
            format="A4",
            scale=0.85,
            print_background=True,
            display_header_footer=True,
            header_template="<span></span>",
            footer_template=FOOT,
            margin={"top": "15mm", "bottom": "15mm", "left": "12mm", "right": "12mm"},
            outline=True,
            tagged=True,
        )
        chromium.close()
    return target


def browser() -> str | None:
    """The path of this machine's Chromium, or None."""
    return next(filter(None, map(shutil.which, BROWSERS)), None)


def contents(names: list[str]) -> str:
    """The book's index: a title, and the lessons in this order."""
    pages = "\n".join(f"notebooks/{lesson_file(name).stem}" for name in names)
    return f"# CUDA graphs in PyTorch, measured\n\n```{{toctree}}\n:numbered: 1\n\n{pages}\n```\n"


if __name__ == "__main__":
    try:
        core = [unnumbered(path.stem) for path in by_parts()[PARTS[0]]]
        print(book(sys.argv[1:] or core))
    except FileNotFoundError as error:
        sys.exit(str(error))
