"""The report: tables with ratios and spread, and where and with what they were measured, as
Markdown.
"""

import hashlib
import os
import sys
from pathlib import Path

import pandas as pd

from course.commands.record import gpu_slug, provenance
from course.paths import ROOT

RESULTS = Path(__file__).resolve().parent / "results"


def table(frame: pd.DataFrame, corner: str = "variant") -> str:
    """A DataFrame as a Markdown table, its index as the first column."""
    rows = [[corner, *frame.columns], ["---"] * (len(frame.columns) + 1)]
    rows += [
        [label, *row] for label, row in zip(frame.index, frame.to_numpy(dtype=object), strict=True)
    ]
    return "\n".join(f"| {' | '.join(_cell(value) for value in row)} |" for row in rows) + "\n"


def spread(low: float, median: float, high: float) -> str:
    """A median and its quartiles, as the tables write them."""
    return f"{median:.2f} [{low:.2f}, {high:.2f}]"


def _cell(value):
    if pd.isna(value):
        return ""
    return f"{value:g}" if isinstance(value, float) else str(value)


def provenance_section() -> str:
    """GPU, driver, host and versions."""
    about = provenance()
    paths = sorted(ROOT.glob("helpers/[a-z]*.py"))
    sources = {path.stem: path.read_bytes() for path in paths}
    modules = " ".join(
        f"{name} {hashlib.sha256(source).hexdigest()[:12]}" for name, source in sources.items()
    )
    versions = about.pop("versions")
    lines = about | {"host cores": os.cpu_count()} | versions | {"helpers": modules}
    return "## Measured on\n\n" + "".join(
        f"- {key}: {value}\n" for key, value in lines.items() if value
    )


def publish(page: str, subject: str = "") -> None:
    """Print a page of Markdown, and keep it in RESULTS under its subject and this GPU's name."""
    print(page)
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{subject}{gpu_slug()}.md"
    path.write_text(page)
    print(f"written to {path}", file=sys.stderr)
