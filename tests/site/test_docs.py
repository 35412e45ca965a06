"""The pages beside the lessons: glossary, originals, cheat sheet, found on the way."""

import io
import re
from contextlib import redirect_stdout

import pytest
import torch

from course.paths import ROOT
from cpu_graph import cpu_graphs

DOCS = ROOT / "docs"
FOUND = (DOCS / "found_on_the_way.md").read_text()
FAULTS = dict(re.findall(r"^### (.*)\n((?:(?!^##).*\n)*)", FOUND, re.MULTILINE))
NEED_MORE_THAN_THE_STAND_IN = {
    "The memory of a failed capture stays reserved",
    "A generator that is registered too late ends the process",
    "The first replay draws from the seed of the capture",
    "graphsafe_get_state does not save the state",
    "Graphs with private pools share one cuBLAS workspace",
    "A capture that cuda.core begins has no pool",
    "Around DistributedDataParallel, each rank trains alone",
    "Ten warm-up steps are not enough",
    "Only early outputs are protected",
    "A second model gets the first one's graph",
    "A flag that does nothing without Transformer Engine",
}


def test_the_readme_leads_to_every_page():
    text = (ROOT / "README.md").read_text()
    assert [path.name for path in DOCS.glob("*.md") if f"(docs/{path.name})" not in text] == []


def script(title):
    """The script of a fault, what the fault makes of it, and what would be right."""
    (code,) = re.findall(r"^```python\n(.*?)^```", FAULTS[title], re.MULTILINE | re.DOTALL)
    last = re.search(r"# wrong: (.*)\n# right: (.*)\n\Z", code)
    assert last, f"{title}: the script ends with what is wrong and what would be right"
    return code, *last.groups()


@pytest.mark.parametrize("title", FAULTS)
def test_a_fault_has_a_script_versions_and_a_lesson(title):
    code, _, _ = script(title)
    compile(code, title, "exec")
    assert len(code.splitlines()) < 30 and max(map(len, code.splitlines())) <= 100
    said = re.findall(r"^- \*\*(.*):\*\* .+", FAULTS[title], re.MULTILINE)
    assert {"Seen on", "Shown in"} <= set(said) <= {"Seen on", "Repaired in", "Thread", "Shown in"}
    shown = (
        r"\*\*Shown in:\*\* \[.*\]\((\.\./(notebooks|examples)/|(optimizers|loops_in_graphs)\.md)"
    )
    assert re.search(shown, FAULTS[title])


def test_faults_that_need_more_than_the_stand_in_are_on_the_page():
    assert set(FAULTS) > NEED_MORE_THAN_THE_STAND_IN
    assert FOUND.count("```python") == len(FAULTS), "each script belongs to a fault"


@pytest.mark.filterwarnings("ignore:The CUDA Graph is empty")
@pytest.mark.parametrize("title", [one for one in FAULTS if one not in NEED_MORE_THAN_THE_STAND_IN])
def test_the_stand_in_shows_a_fault(title):
    code, wrong, right = script(title)
    if "transformers" in code:
        pytest.importorskip("transformers")
    repaired = re.search(r"\*\*Repaired in:\*\* torch ([\d.]+)", FAULTS[title])
    expected = right if repaired and torch.__version__ >= repaired[1] else wrong
    printed = io.StringIO()
    with cpu_graphs(), redirect_stdout(printed):
        try:
            exec(code, {})
        except Exception as error:
            print(f"{type(error).__name__}: {error}")
    assert printed.getvalue().strip() == expected
