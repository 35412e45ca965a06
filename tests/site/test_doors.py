"""The ways into the course: the front page, a missing page, the address, icons, downloads."""

import re

import pytest

from course.lessons import lesson_file
from course.paths import ROOT
from docs import address
from tests.support.notebooks import RECORDED

pytest.importorskip("docutils", reason="the site needs what `make test` installs")

from docs import site_files

SOMEWHERE = "https://github.com/owner/name"
ELSEWHERE = "github.com/owner|colab.research|mybinder|codespaces.new"


def test_the_front_page_has_three_doors_and_the_picture(site):
    text = (site / "index.html").read_text()
    doors = re.findall(r'<a class="[^"]*" href="([^"]*)"><span[^>]*><strong>(.*?)</strong>', text)
    start = lesson_file("start_here").stem
    assert doors[:3] == [
        (f"notebooks/{start}.html", "Read"),
        ("README.html", "Run"),
        ("explain.html", "I have an error"),
    ]
    assert "<figure class='capture'" in text and "match the eager ones" in text
    assert "have one evening" in text and "git clone" not in text


def test_pages_have_their_icons_without_the_themes_large_script(site):
    assert "_static/icons.css" in (site / "index.html").read_text()
    scripts = [path for path in site.rglob("*.js") if path.name != "searchindex.js"]
    assert max(path.stat().st_size for path in scripts) < 450_000


def test_the_download_is_the_lessons_own_notebook(site):
    for path in [*RECORDED, *(lesson.parent / "solutions" / lesson.name for lesson in RECORDED)]:
        name = path.relative_to(ROOT)
        assert (site / "_sources" / name).read_bytes() == path.read_bytes()
        assert f"_sources/{name}" in (site / name.with_suffix(".html")).read_text()


def test_a_missing_page_is_answered_from_any_depth(site):
    text = (site / "404.html").read_text()
    links = re.findall(r'(?:href|src|data-content_root|action)="([^"]*)"', text)
    assert len(links) > 40 and all(re.match(r"/|#|https://", link) for link in links)


def test_a_missing_page_knows_the_folder_that_the_site_is_in(tmp_path):
    page = tmp_path / "404.html"
    page.write_text(
        '<html data-content_root="./"><a href="a/b.html#c"><a href="#d"><img src="data:,">'
    )
    site_files.fix_error_page_links(tmp_path, "https://owner.github.io/name/")
    assert page.read_text() == (
        '<html data-content_root="/name/"><a href="/name/a/b.html#c"><a href="#d">'
        '<img src="data:,">'
    )


# the repository's address


def test_without_an_address_there_is_no_link_to_one(site, monkeypatch):
    monkeypatch.delenv("REPOSITORY_ADDRESS", raising=False)
    assert address.repository() == address.where_to_ask("") == ""
    assert address.open_links("", "a") == {}
    assert not any(re.search(ELSEWHERE, path.read_text()) for path in site.glob("*.html"))


def test_buttons_are_made_from_the_address(monkeypatch):
    monkeypatch.setenv("REPOSITORY_ADDRESS", f"{SOMEWHERE}.git")
    assert address.repository() == SOMEWHERE
    assert address.open_links(SOMEWHERE, "notebooks/a.ipynb") == {
        "Colab": "https://colab.research.google.com/github/owner/name/blob/colab/notebooks/a.ipynb",
        "Codespaces": "https://codespaces.new/owner/name",
        "Binder": "https://mybinder.org/v2/gh/owner/name/main?urlpath=lab/tree/notebooks/a.ipynb",
    }
    assert f"]({SOMEWHERE}/issues/new/choose)" in address.where_to_ask(SOMEWHERE)
    assert address.open_links("https://gitlab.com/owner/name", "a") == {}


@pytest.mark.parametrize("wrong", ["owner/name", "http://github.com/owner/name", "https://host"])
def test_what_is_no_address_is_refused(monkeypatch, wrong):
    monkeypatch.setenv("REPOSITORY_ADDRESS", wrong)
    with pytest.raises(ValueError, match="is no address"):
        address.repository()
