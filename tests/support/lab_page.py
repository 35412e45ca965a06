"""A notebook open in JupyterLab, in a real browser."""

import re

import pytest

from tests.support.machine import PATIENCE

expect = pytest.importorskip("playwright.sync_api").expect  # the GPU machine has none
expect.set_options(timeout=PATIENCE * 1000)


class Notebook:
    """A notebook open in JupyterLab."""

    def __init__(self, lab, page, path):
        self.lab = lab
        self.page = page
        self.path = path
        expect(page.locator(".jp-Notebook")).to_be_visible()
        self.code = page.locator(".jp-Notebook .jp-CodeCell")
        lab.kernel(path)

    def run_all(self):
        """Run > Run All Cells; wait until every cell has run, or one has failed."""
        self.page.locator("#jp-MainMenu").get_by_text("Run", exact=True).click()
        self.page.locator(".lm-Menu-item").filter(has_text=re.compile("^Run All Cells")).click()
        self.page.wait_for_function(
            """() => {
              const prompts = [...document.querySelectorAll(".jp-Notebook .jp-CodeCell .jp-InputPrompt")];
              // a folded cell's is empty
              const done = prompts.every(prompt => /^(\\[\\d+\\]:)?$/.test(prompt.textContent));
              return done || document.querySelector(".jp-Notebook [data-mime-type$='jupyter.error']");
            }""",
            polling=200,  # ms; else it asks at every frame
        )
        self.lab.kernel(self.path)

    def cell(self, source):
        """The code cell that holds this source."""
        return self.code.filter(has_text=source)

    def write(self, cell, source):
        """Type source in place of what the cell holds."""
        cell.locator(".cm-content").click()
        self.page.keyboard.press("Control+a")
        self.page.keyboard.insert_text(source)

    def run(self, cell):
        """Run one cell by Control+Enter and wait for it."""
        cell.locator(".cm-content").click()
        self.page.keyboard.press("Control+Enter")
        expect(cell.locator(".jp-InputPrompt")).to_have_text(re.compile(r"^\[\d+\]:$"))
