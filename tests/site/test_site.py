"""The course's site: built without a warning, whole and self-contained; test_site_in_a_browser.py
reads it.
"""

import re
from html.parser import HTMLParser
from urllib.parse import unquote, urlsplit

import pytest

from course.lessons import former_names, lesson_file
from course.paths import ROOT, lesson_name
from course.recordings.recording import find_recording, recordings_of

nodes = pytest.importorskip("docutils.nodes", reason="the site needs what `make test` installs")

from docs import pages  # noqa: E402
from docs.lesson_page import provenance  # noqa: E402

SCRIPT = "<script>document.title='x'</script>"


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


def test_every_lesson_has_a_page_with_its_outputs_and_where_they_come_from(site, played_lessons):
    for path, notebook in played_lessons.items():
        text = (site / "notebooks" / f"{path.stem}.html").read_text()
        for recording in recordings_of(lesson_name(path)):
            assert all(recording.about[word] in text for word in ("gpu", "driver", "torch", "date"))
        outputs = [cell.get("outputs", []) for cell in notebook.cells]
        of_cells = [sum("image/png" in each.get("data", {}) for each in own) for own in outputs]
        assert max(of_cells) <= 1, f"{path.name}: the text of a chart is its cell's"
        charts = sum(of_cells)
        drawings = len(re.findall(r"!\[|from course.touch.capture", path.read_text()))
        assert text.count("<img alt=") == charts + drawings


def test_texts_of_a_recording_are_shown_and_never_run():
    """The recording may be a stranger's."""
    about = find_recording("start_here").about
    for name in ("gpu", "torch", "driver", "cuda", "python", "date"):
        said = provenance(about | {name: f"{SCRIPT} [x](javascript:1)"})
        assert "<script" not in said and "[x](" not in said, name
        assert "&lt;script&gt;" in said and "\\[x\\](javascript:1)" in said
    assert about["torch"] in provenance(about), "what is harmless stays as it is"


def test_the_reference_describes_every_module_of_the_rooms(site):
    text = (site / "api.html").read_text()
    rooms = ("helpers", "capturable", "cpu_graph", "trace_report")
    files = (path for room in rooms for path in (ROOT / room).glob("[a-z]*.py"))
    assert {f"{path.parent.name}.{path.stem}" for path in files} <= set(pages.modules())
    assert all(f'id="module-{name}"' in text for name in pages.modules())
    assert "Capture step(*static_inputs) in one CUDA graph" in text


def test_former_addresses_of_lessons_lead_to_the_present_ones(site):
    former = former_names()
    assert former
    for old, name in former.items():
        for folder in ("notebooks", "notebooks/solutions"):
            target = f"{lesson_file(name).stem}.html"
            assert f'"{target}"' in (site / folder / f"{old}.html").read_text()
            assert (site / folder / target).exists()


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
            anchor = unquote(address.fragment)
            if not target.exists() or (anchor and anchor not in parsed[target].anchors):
                broken.append(f"{path.name}: {link}")
    assert not broken, "\n".join(broken)


def test_pages_load_nothing_from_elsewhere(parsed, site):
    loads = [load for page in parsed.values() for load in page.loads]
    assert [load for load in loads if re.match(r"(https?:)?//", load)] == []
    styles = "".join(path.read_text() for path in site.rglob("*.css"))
    assert not re.search(r"(url\(|@import)\s*[\"']?(https?:)?//", styles)


def test_every_image_has_a_text_that_says_what_it_shows(parsed):
    images = [image for page in parsed.values() for image in page.images]
    assert len(images) > 20
    assert [source for source, text in images if not text or len(text) < 20] == []
