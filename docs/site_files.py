"""What a built site still needs: notebooks to download, and the page for errors 404."""

import re
import shutil
from pathlib import Path
from urllib.parse import urljoin, urlsplit

from course.paths import NOTEBOOKS, ROOT

RELATIVE = re.compile(r'((?:href|src|data-content_root|action)=")(?![a-z]+:|[/#])([^"]*)"')


def copy_original_notebooks(html: Path) -> None:
    """Let the download button hand out the lesson as it is in the repository."""
    for path in [*NOTEBOOKS.glob("*.ipynb"), *NOTEBOOKS.glob("solutions/*.ipynb")]:
        source = html / "_sources" / path.relative_to(ROOT)
        if source.exists():  # a lesson that is not recorded has no page
            shutil.copyfile(path, source)


def fix_error_page_links(html: Path, address: str) -> None:
    """Let the links of 404.html begin at the site's root: it answers at addresses of any depth."""
    root = urlsplit(address).path.rstrip("/") + "/"
    page = html / "404.html"
    text = page.read_text(encoding="utf-8")
    text = RELATIVE.sub(lambda found: f'{found[1]}{urljoin(root, found[2])}"', text)
    page.write_text(text, encoding="utf-8")
