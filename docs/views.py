"""What one can touch on a lesson's page: its views, played
on the values of its recording, without a kernel.
"""

import re

import nbformat

from course.lesson import playing
from course.recordings.cells import code_cells
from course.recordings.player import play, run
from course.recordings.recording import Recording

SHOWN = re.compile(r"^from course\.(touch|beside)\b", re.MULTILINE)


def lay_views(notebook: nbformat.NotebookNode, recording: Recording) -> None:
    """Under each view of these modules, lay what it gives after the plain cells before it."""
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    found = [
        one.number
        for one in code_cells(notebook)
        if one.kind == "view" and SHOWN.search(one.source)
    ]
    with playing(recording):
        for one, names in play(notebook, recording, max(found, default=0)):
            if one.number in found:
                data = {"text/html": run(one.source, names)._repr_html_()}
                cells[one.number - 1].outputs = [nbformat.v4.new_output("display_data", data)]
