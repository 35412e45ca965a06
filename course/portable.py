"""Keep the paths of the recording machine out of a recording."""

import re
import sys
from pathlib import Path

import nbformat

from course.recording import ROOT


def without_paths(notebook, name):
    """Let paths in a lesson's outputs, as in warnings and tracebacks, start at the project or the package.

    The folder in which the recorder staged the lesson's traces gets the lesson's name. Cells lose their
    metadata. Returns the notebook.
    """
    folders = {str(ROOT), sys.prefix, *filter(None, sys.path), str(Path.home())}
    longest_first = sorted((re.escape(folder) + "/" for folder in folders), key=len, reverse=True)
    pattern = re.compile("|".join([*longest_first, r"/tmp/ipykernel_\d+/"]))
    staging = re.compile(r"\.staging-\w+/traces")

    def clean(node):
        if isinstance(node, dict):
            return {key: item if key.startswith("image/") else clean(item) for key, item in node.items()}
        if isinstance(node, list):
            return [clean(item) for item in node]
        return staging.sub(name, pattern.sub("", node)) if isinstance(node, str) else node

    for cell in notebook.cells:
        cell.metadata = {}
        if cell.cell_type == "code":
            cell.outputs = clean(cell.outputs)
    return nbformat.from_dict(notebook)
