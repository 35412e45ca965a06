"""The box that takes an error, and the search: what a reader who is stuck types or pastes."""

import json
import re
from urllib.parse import quote

import pytest

from capturable.causes import entries, find_causes, standard_cause_name
from capturable.explain import SAID, explanation_text
from course.lessons import lesson_file
from course.paths import ROOT
from course.recordings.recording import find_recording
from docs.pages import slug
from docs.search import questions
from tests.support.lab_page import expect

pytestmark = pytest.mark.browser
NAMES = {entry.title: standard_cause_name(entry) for entry in entries()}
GALLERY = f"notebooks/{lesson_file('failure_gallery').stem}"
CAPTURING = (
    "  losses.append(loss.item())\nCUDA error: operation not permitted when stream is capturing\n"
    "Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.\n"
)
UNJOINED = "CUDA error: capturing stream has unjoined work"
SYMPTOM = "graph.replay() gives the same output for every input batch"
OF_SOMETHING_ELSE = "ValueError: too many values to unpack (expected 2)"
PRINT = """texts => {
  const { explain, print } = explainer(RULES.explain);
  return texts.map(text => print(explain(text)));
}"""


@pytest.fixture(scope="module")
def texts():
    """All that `capturable explain` is tested on: reports, and the gallery's own tracebacks."""
    held_out = json.loads((ROOT / "tests/capturable/held_out_reports.json").read_text("utf-8"))
    reported = [*(one["text"] for one in held_out["reports"]), *held_out["no_failures"]]
    shown = find_recording("failure_gallery").value("exhibits")
    own = [*shown.message.dropna(), *shown.traceback.dropna()]
    bare = [f"{text}: {number}" for number in range(898, 910) for text in ("CUDA error", "code")]
    return [*reported, *own, *bare, "", "\n \n"]


def test_the_page_answers_as_the_command_does(page, texts):
    page.goto(f"{page.address}/explain.html")
    said = page.evaluate(PRINT, texts)
    assert len(said) == len(texts) > 250
    assert sum(SAID["guesses"] in told for told in said) > 30
    expected = [explanation_text(text, find_causes(text)) for text in texts]
    both = zip(texts, said, expected, strict=True)
    assert [text for text, told, right in both if told != right] == []


def test_a_symptom_gets_a_guess_that_says_so_and_another_error_an_honest_word(page):
    """Each text in one go, as pasting does."""
    page.goto(f"{page.address}/explain.html")
    box, said = page.get_by_label("Paste an error message"), page.locator(".answer")
    name = NAMES["A new tensor under the old name"]
    box.fill(SYMPTOM)
    first = said.locator("h3 a").first
    assert first.inner_text() == name and SAID["unknown"] in said.inner_text()
    assert first.get_attribute("href").endswith(f"{GALLERY}.html#{slug(name)}")
    box.fill(OF_SOMETHING_ELSE)
    assert SAID["unknown"] in said.inner_text() and said.locator("h3").count() == 0
    assert {url for url in page.asked if not re.search("explain|_static|searchindex", url)} == set()


def test_the_answer_leads_to_the_exhibit_and_shows_it(page):
    page.goto(f"{page.address}/{GALLERY}.html")
    page.get_by_label("Paste an error message").fill(CAPTURING)
    page.locator(".answer h3 a").click()
    headings = page.locator("section > h3", has_text=NAMES["A value read in a capture"])
    expect(headings.last).to_be_in_viewport()
    ids = page.evaluate("[...document.querySelectorAll('[id]')].map(one => one.id)")
    shown = [entry for entry in entries() if entry.exhibit]
    assert {slug(standard_cause_name(entry)) for entry in shown} <= set(ids), "an address each"


def test_an_address_may_hold_the_message(page):
    page.goto(f"{page.address}/explain.html?message={quote(UNJOINED)}")
    assert page.locator(".answer h3").inner_text() == NAMES["A fork that is never joined"]


SEARCHES = {  # what a person types: the page that answers it, or either of two
    "how many warmup": "docs/cheat_sheet",
    "loss is nan after capture": GALLERY,
    "906": GALLERY,
    "illegal memory access": GALLERY,
    "learning rate has no effect": GALLERY,
    "kv cache": "decode_language_model",
    "vllm": "serve_language_model",
    "dropout": "replay_random_numbers",
    "reduce-overhead slower": "let_torch_compile_capture",
    "dataloader": "capture_optimizers",
    "DDP": "train_on_several_gpus",
    "variable sequence length": "graph_many_shapes",
    "memory pool": "share_memory_pools",
    "what is a cuda graph": "index",
    "no gpu": "docs/run_the_course",
    "how do I install": "docs/run_the_course",
    "wrong results": GALLERY,
    "fp16 gradscaler": "capture_optimizers",
    "make_graphed_callables": "make_graphed_callables",
    "deepspeed": "train_on_several_gpus",
}


FIRST = """queries => queries.map(query => {
  const hits = Search._performSearch(...Search._parseQuery(query));
  return hits.at(-1)?.[0] ?? "nothing";
})"""  # the last hit is shown first


def test_what_people_type_finds_its_page_first(page):
    page.goto(f"{page.address}/search.html?q=how many warmup")
    first = page.locator("#search-results li a").first
    expect(first).to_have_text("CUDA graphs on one page > Recipe")
    found = dict(zip(SEARCHES, page.evaluate(FIRST, list(SEARCHES)), strict=True))
    expected = {query: where(name) for query, name in SEARCHES.items()}
    missed = found.items() - expected.items()
    assert len(SEARCHES) >= 20 and len(missed) <= len(SEARCHES) // 10, missed


def where(name):
    """A page's address by its lesson's name."""
    own = "/" in name or name in ("index", "README")
    return name if own else f"notebooks/{lesson_file(name).stem}"


def test_every_question_leads_to_a_page_and_a_heading(page):
    page.goto(f"{page.address}/search.html?q=graph")
    page.locator("#search-results li a").first.wait_for()
    asked = [[name, heading] for name, heading, _ in questions()]
    found = page.evaluate("asked => asked.map(one => result(...one, 1))", asked)
    both = zip(asked, found, strict=True)
    assert [one for one, hit in both if hit is None or (one[1] and not hit[2])] == []
