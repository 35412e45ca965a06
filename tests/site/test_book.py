"""The lessons in print."""

import re

import pytest

pytest.importorskip("playwright", reason="the GPU machine has none")

import docs.book
from docs.book import book


@pytest.mark.browser
@pytest.mark.weekly
def test_lessons_are_printed_with_an_outline_of_their_headings(tmp_path):
    printed = book(["capture_and_replay"], tmp_path).read_bytes()
    assert printed.startswith(b"%PDF-") and printed.rstrip().endswith(b"%%EOF")
    assert len(re.findall(rb"/Type /Page\b", printed)) > 8
    assert b"/Outlines" in printed


def test_without_chromium_it_says_so_before_it_builds(tmp_path, monkeypatch):
    monkeypatch.setattr(docs.book.shutil, "which", lambda name: None)
    with pytest.raises(FileNotFoundError, match="needs Chromium, and finds none"):
        book(["capture_and_replay"], tmp_path)
    assert list(tmp_path.iterdir()) == []
