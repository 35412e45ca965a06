"""Fail unless the notebooks ran:  python .github/notebooks_ran.py RESULTS

RESULTS is the JUnit report of `pytest --nbmake notebooks`, then every notebook must have passed in
it; or the folder of `make works-on`, then every lesson's executed copy must lie there, with every
code cell executed.
"""

import json
import sys
from pathlib import Path
from xml.etree import ElementTree

NOTEBOOKS = Path(__file__).resolve().parent.parent / "notebooks"


def passed(report: Path) -> set[str]:
    """The notebooks that nbmake ran, by their path under notebooks/, from a JUnit report."""
    cases = (case for case in ElementTree.parse(report).iter("testcase") if len(case) == 0)
    dotted = (
        case.get("classname").removeprefix("notebooks.").removesuffix(".ipynb") for case in cases
    )
    return {f"{name.replace('.', '/')}.ipynb" for name in dotted}


def executed(folder: Path) -> set[str]:
    """The notebooks in a folder in which every code cell was executed, by name."""
    cells = {path.name: json.loads(path.read_text())["cells"] for path in folder.glob("*.ipynb")}
    code = {
        name: [cell for cell in all_of if cell["cell_type"] == "code"]
        for name, all_of in cells.items()
    }
    return {name for name, of in code.items() if of and all(cell["execution_count"] for cell in of)}


def main(results: Path) -> int:
    """Print the count, or name what did not run and return 1."""
    paths = NOTEBOOKS.glob("*.ipynb") if results.is_dir() else NOTEBOOKS.rglob("*.ipynb")
    wanted = {
        str(path.relative_to(NOTEBOOKS)) for path in paths if ".ipynb_checkpoints" not in path.parts
    }
    missing = wanted - (executed(results) if results.is_dir() else passed(results))
    print(
        f"Did not run: {', '.join(sorted(missing))}"
        if missing
        else f"All {len(wanted)} notebooks ran."
    )
    return 1 if missing or not wanted else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
