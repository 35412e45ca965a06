"""The course's site: built without a warning, whole and
self-contained; test_site_in_a_browser.py reads it.
"""

import re
import subprocess
from html.parser import HTMLParser
from types import SimpleNamespace
from urllib.parse import unquote, urlsplit

import nbformat
import pytest
from nbformat.v4 import new_output

from course.lessons import lesson_file, unnumbered
from course.paths import NOTEBOOKS, REFERENCE_GPU, ROOT, TRACES
from course.recordings.recording import recorded_lesson, recordings
from course.recordings.values import MIME
from course.touch import framed
from tests.support.notebooks import LESSONS

nodes = pytest.importorskip("docutils.nodes", reason="the site needs what `make test` installs")

from docs import conf, content_policy, lesson_page, pages  # noqa: E402

START = lesson_file("start_here")


class Page(HTMLParser):
    """The addresses that a page loads and links to, its anchors, and its images' texts."""

    def __init__(self, path):
        super().__init__()
        self.loads = []
        self.links = []
        self.anchors = set()
        self.images = []
        self.feed(path.read_text())

    def handle_starttag(self, tag, attributes):
        of = dict(attributes)
        self.anchors |= {of.get("id"), of.get("name")}
        if tag == "img":
            self.images.append((of["src"], of.get("alt")))
        if tag == "a" and "href" in of:
            self.links.append(of["href"])
        elif tag != "a":
            self.loads += [of[name] for name in ("src", "href", "data", "poster") if of.get(name)]


@pytest.fixture(scope="module")
def parsed(site):
    return {path: Page(path) for path in site.rglob("*.html") if "_static" not in path.parts}


def test_make_site_builds_as_tested_here():
    made = subprocess.run(["make", "-n", "site"], cwd=ROOT, capture_output=True, text=True).stdout
    assert (
        re.search("-m docs.pages$", made, re.MULTILINE)
        and pages.SOURCE == ROOT / "docs/_build/source"
    )
    assert (
        "-m sphinx --quiet --fail-on-warning --keep-going -c docs docs/_build/source "
        "docs/_build/html" in made
    )


def test_every_lesson_has_a_page_with_its_outputs_and_where_they_come_from(site):
    for path in LESSONS:
        text = (site / "notebooks" / f"{path.stem}.html").read_text()
        recording = TRACES / REFERENCE_GPU / f"{path.stem.partition('_')[2]}.ipynb"
        if recording.exists():
            about = recorded_lesson(recording.stem).about
            assert all(
                part in text
                for part in (about["gpu"], about["driver"], about["torch"], about["date"])
            )
            assert all(one.about["gpu"] in text for one in recordings(recording.stem)), (
                "every GPU is named"
            )
            charts = recording.read_text().count('"image/png"')
            drawings = len(re.findall(r"!\[|from course.touch.(?:capture|pays)", path.read_text()))
            assert text.count("<img alt=") == charts + drawings
        assert MIME not in text and "handed on:" not in text


def test_the_reference_describes_every_module_of_the_rooms(site):
    text = (site / "api.html").read_text()
    rooms = ("helpers", "capturable", "cpu_graph")
    assert {
        f"{room}.{path.stem}" for room in rooms for path in (ROOT / room).glob("[a-z]*.py")
    } <= set(pages.modules())
    assert all(f'id="module-{name}"' in text for name in pages.modules())
    assert "Capture step(*static_inputs) in one CUDA graph" in text


def test_no_link_is_broken(parsed, site):
    broken = []
    for path, page in parsed.items():
        for link in page.links + page.loads:
            address = urlsplit(link)
            if address.scheme or address.netloc:
                continue
            folder = site if address.path.startswith("/") else path.parent  # as in 404.html
            named = folder / unquote(address.path).lstrip("/")
            target = named.resolve() if address.path else path
            target = target / "index.html" if target.is_dir() else target
            if not target.exists() or (
                address.fragment and unquote(address.fragment) not in parsed[target].anchors
            ):
                broken.append(f"{path.name}: {link}")
    assert not broken, "\n".join(broken)


def test_pages_load_nothing_from_elsewhere(parsed, site):
    outside = [
        load for page in parsed.values() for load in page.loads if re.match(r"(https?:)?//", load)
    ]
    assert outside == []
    styles = "".join(path.read_text() for path in site.rglob("*.css"))
    assert not re.search(r"(url\(|@import)\s*[\"']?(https?:)?//", styles)


def test_every_image_has_a_text_that_says_what_it_shows(parsed):
    images = [image for page in parsed.values() for image in page.images]
    assert len(images) > 20
    assert [source for source, text in images if not text or len(text) < 20] == []


def test_search_finds_words_of_lessons_and_of_helpers(site):
    index = (site / "searchindex.js").read_text()
    assert (
        f"notebooks/{lesson_file('reach_floor').stem}" in index
        and "helpers.capture.capture_step" in index
    )
    assert '"dropout"' in index or "dropout:" in index


def test_a_changed_cell_keeps_no_output():
    """The page shows an output only under the very cell that gave it."""
    notebook, recording = (
        nbformat.read(START, as_version=4),
        recorded_lesson("start_here"),
    )
    cell = next(cell for cell in notebook.cells if "cpu_gpu_chart(additions" in cell.source)
    lesson_page.lay_outputs(notebook, recording)
    assert "image/png" in cell.outputs[0].data
    cell.source, cell.outputs = cell.source.replace("additions", "additions.copy()"), []
    lesson_page.lay_outputs(notebook, recording)
    assert cell.outputs == []


def test_recorded_html_runs_no_script_on_a_page():
    bold, step = (
        "<b onclick='go()'>bold</b><script>go()</script>",
        "<figure data-timeline='{}'>a step</figure>",
    )
    kept = '<figure data-timeline="{}">a step</figure>'
    for html, clean in (
        (bold, "<b>bold</b>"),
        (bold + step, framed("timeline", f"<b>bold</b>{kept}")),
    ):
        output = nbformat.v4.new_output("display_data", {"text/html": html})
        assert lesson_page.harmless(output).data["text/html"] == clean


@pytest.mark.parametrize(
    "kind, text",
    [
        ("text/markdown", "```{raw} html\n<script>go()</script>\n```"),
        ("text/markdown", ":::{raw} html\n<script>go()</script>\n:::"),
        ("text/markdown", "![remote](https://example.org/picture.png)"),
        ("text/markdown", "{raw}`<script>`"),
        ("application/javascript", "go()"),
        ("text/latex", r"\href{javascript:go()}{x}"),
        ("image/svg+xml", "<svg onload='go()'/>"),
    ],
)
def test_what_could_run_or_load_is_shown_as_text(kind, text):
    output = new_output("display_data", {kind: text, "text/plain": "plain"})
    shown = lesson_page.harmless(output).data
    assert shown == {"text/plain": text if kind == "text/markdown" else "plain"}


def test_html_in_markdown_is_text():
    for text in ("<script>go()</script>", "text <img src=x onerror=go()>", "| a |\n|---|\n| <b> |"):
        output = new_output("display_data", {"text/markdown": text, "text/plain": "plain"})
        assert lesson_page.harmless(output).data == {"text/markdown": text.replace("<", "\\<")}


def test_every_script_of_a_page_is_known_and_no_other_may_run(site):
    for path in {*site.rglob("*.html")} - {*site.glob("_static/**/*")}:
        text = path.read_text()
        (policy,) = re.findall(r'<meta http-equiv="Content-Security-Policy" content="(.*?)">', text)
        scripts = content_policy.inline([text])
        needed = {re.findall("sha256-[^']*", content_policy.policy({one}))[0] for one in scripts}
        assert needed and needed <= set(re.findall("sha256-[^']*", policy)), path


def test_a_script_that_only_a_lessons_page_has_may_not_run(tmp_path):
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "index.html").write_text("<html><head><script>known()</script></head></html>")
    lesson = (
        "<html><head><script>known()</script><script>go()</script><b onclick='x' onload=\"go()\">"
    )
    (tmp_path / "notebooks" / "lesson.html").write_text(lesson)
    content_policy.protect(tmp_path)
    text = (tmp_path / "notebooks" / "lesson.html").read_text()
    assert text.count("sha256-") == 1 and "'unsafe-inline'" not in text.partition("style-src")[0]


def test_a_recorded_link_leads_to_the_number_that_the_lesson_has_now():
    start = lesson_file("start_here").name
    recorded = new_output("display_data", {"text/markdown": f"[Start](99_{unnumbered(start)})"})
    assert lesson_page.harmless(recorded).data["text/markdown"] == f"[Start]({start})"


def test_no_page_says_that_it_runs_live(site):
    assert not any("Live</strong>" in path.read_text() for path in site.glob("notebooks/*.html"))


def test_a_notebook_without_recording_is_a_page_without_outputs():
    notebook = pages.page(NOTEBOOKS / "solutions" / START.name)
    assert not any(cell.get("outputs") for cell in notebook.cells)


def test_math_becomes_mathml():
    translator = SimpleNamespace(body=[])
    with pytest.raises(nodes.SkipNode):
        conf.write_math(translator, nodes.math_block("", r"\frac{a}{b}"))
    assert translator.body[0].startswith("<math") and "<mfrac>" in translator.body[0]


@pytest.mark.parametrize(
    ("source", "text"),
    [
        (
            "cpu_gpu_chart(\n    timings\n);",
            'Chart in the section "Look": Host time, GPU busy time and step time of each variant, '
            "as medians with quartiles. Drawn by cpu_gpu_chart(timings)",
        ),
        (
            'axes.set(xlabel="step", ylabel="MiB")',
            'Chart in the section "Look", with the axes: step; MiB',
        ),
        ("plt.imshow(masks)", 'Chart in the section "Look"'),
    ],
)
def test_the_text_of_a_chart_comes_from_its_cell(source, text):
    assert lesson_page.alternative(source, "Look") == text


def test_docstrings_are_plain_text_whatever_they_hold():
    lines = [
        "f(*args) of a | b.",
        "",
        "Rows:",
        "  one: 1",
        "     and more",
        "  two",
        "",
        "    as it stands",
        "",
    ]
    conf.plain_text(None, "function", "f", None, None, lines)
    rows = ["Rows:", "", "- one: 1 and more", "", "- two"]
    assert lines == ["f(\\*args) of a \\| b.", "", *rows, "", "|     as it stands", ""]
