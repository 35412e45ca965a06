"""The lessons in print."""

import re

import pytest

from docs.book import book

pytestmark = pytest.mark.browser


def test_lessons_are_printed_with_an_outline_of_their_headings(tmp_path):
    printed = book(["capture_and_replay"], tmp_path).read_bytes()
    assert printed.startswith(b"%PDF-") and printed.rstrip().endswith(b"%%EOF")
    assert len(re.findall(rb"/Type /Page\b", printed)) > 8
    assert b"/Outlines" in printed
