"""Where the repository is, once it is somewhere: a setting, from which links and buttons are made.

REPOSITORY_ADDRESS in the environment, or Repository among [project.urls] of pyproject.toml, such as
https://github.com/owner/name. Without either, there are no such links.
"""

import os
import tomllib
from urllib.parse import urlsplit

from course.paths import ROOT

BRANCH = "main"
COLAB_BRANCH = "colab"  # whose notebooks fetch the course: docs/colab.py
COLAB = "https://colab.research.google.com"
BINDER = "https://mybinder.org"
CODESPACES = "https://codespaces.new"


def repository() -> str:
    """The repository's address, or "". Raises ValueError for one that is none."""
    urls = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"].get("urls", {})
    address = os.environ.get("REPOSITORY_ADDRESS") or urls.get("Repository", "")
    address = address.rstrip("/").removesuffix(".git")
    parts = urlsplit(address)
    if address and (parts.scheme != "https" or parts.path.count("/") < 2):
        raise ValueError(f"{address!r} is no address such as https://github.com/owner/name")
    return address


def github_name(address: str) -> str:
    """owner/name of a repository on GitHub, whose notebooks Colab and Codespaces open; else ""."""
    parts = urlsplit(address)
    return parts.path.strip("/") if parts.netloc == "github.com" else ""


def where_to_ask(address: str) -> str:
    """Where readers ask, in a sentence of Markdown; "" without a repository on GitHub."""
    form = f"{address}/issues/new/choose"
    return f"Something is unclear or wrong? [Ask]({form})." if github_name(address) else ""


def open_links(address: str, file: str) -> dict[str, str]:
    """What opens a notebook of the repository in the browser, by its name; {} without one.

    file: the notebook's path, such as that of lesson_file("start_here").
    """
    name = github_name(address)
    if not name:
        return {}
    return {
        "Colab": f"{COLAB}/github/{name}/blob/{COLAB_BRANCH}/{file}",
        "Codespaces": f"{CODESPACES}/{name}",
        "Binder": f"{BINDER}/v2/gh/{name}/{BRANCH}?urlpath=lab/tree/{file}",
    }
