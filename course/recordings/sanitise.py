"""What makes a recording safe to hand on: no paths of
the recording machine in it, no scripts out of it.
"""

import re
import sys
import tempfile
from pathlib import Path

import nbformat

from course.paths import ROOT

CHATTER = re.compile(r"^USDT:.* profiler_(?:start|stop)\n?", re.MULTILINE)


def without_paths(notebook: nbformat.NotebookNode, name: str) -> nbformat.NotebookNode:
    """Let paths in a lesson's outputs, as in warnings
    and tracebacks, start at the project or the package.

    The temporary folder of the lesson's traces gets the lesson's
    name. Cells lose their metadata. Returns the notebook.
    """
    folders = {str(ROOT), sys.prefix, *filter(None, sys.path), str(Path.home())}
    longest_first = sorted((re.escape(folder) + "/" for folder in folders), key=len, reverse=True)
    pattern = re.compile("|".join([*longest_first, r"/tmp/ipykernel_\d+/"]))
    staging = re.compile(re.escape(tempfile.gettempdir()) + r"/tmp\w+")

    def clean(node):
        if isinstance(node, dict):
            return {
                key: item if key.startswith("image/") else clean(item) for key, item in node.items()
            }
        if isinstance(node, list):
            return [clean(item) for item in node]
        return staging.sub(name, pattern.sub("", node)) if isinstance(node, str) else node

    for cell in notebook.cells:
        cell.metadata = {}
        if cell.cell_type == "code":
            cell.outputs = clean(cell.outputs)
    return nbformat.from_dict(notebook)


def without_running_outputs(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """Leave no script in a lesson's outputs: clean their
    HTML, drop their JavaScript; return the notebook.
    """
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            data.pop("application/javascript", None)
            if "text/html" in data:
                data["text/html"] = without_scripts(data["text/html"])
    return notebook


def without_chatter(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """Drop what torch 2.15's profiler prints as it starts and stops; return the notebook."""
    for cell in notebook.cells:
        kept = []
        for output in cell.get("outputs", []):
            if output.output_type == "stream":
                output.text = CHATTER.sub("", output.text)
            if output.output_type != "stream" or output.text:
                kept.append(output)
        if cell.cell_type == "code":
            cell.outputs = kept
    return notebook


def plain_markdown(text: str) -> str | None:
    """Markdown of text, tables, links and code alone, in which HTML is text.

    None if it holds a picture, a directive or a role.
    """
    from markdown_it import MarkdownIt  # here, because only the site needs it

    parser = MarkdownIt("commonmark").enable("table")

    def tokens():
        parsed = parser.parse(text)
        return parsed + [child for token in parsed for child in token.children or []]

    html = {token.content for token in tokens() if token.type in ("html_block", "html_inline")}
    for content in html:
        text = text.replace(content, content.replace("<", "\\<"))
    special = re.compile(r"\{[^}]*\}$|^:::|^\s*%|\)=\s*$")
    for token in tokens():
        if (
            token.type in ("html_block", "html_inline", "image")
            or (token.type == "fence" and token.info.strip().startswith("{"))
            or (token.type == "text" and special.search(token.content))
        ):
            return None
    return text


def without_scripts(html: str) -> str:
    """HTML with its tables, text and timelines' data; without
    scripts, styles and whatever else could run in a page.
    """
    import nh3  # here, because recording needs none of it

    kept = {"*": {"class", "colspan", "rowspan"}, "table": {"border"}, "figure": {"data-timeline"}}
    return nh3.clean(html, attributes=kept)
