"""The changelog: releases have a version and a date; the newest is the one packaged and cited."""

import re
from datetime import date

import yaml

from course.paths import ROOT
from tests.support.project import PROJECT

CHANGELOG = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
HEADINGS = re.findall(r"^## (.*)", CHANGELOG, re.MULTILINE)
RELEASE = re.compile(r"(\d+\.\d+\.\d+) - (\d{4}-\d\d-\d\d)")
RELEASES = [RELEASE.fullmatch(heading) for heading in HEADINGS[1:]]


def test_releases_have_a_version_and_a_date_and_come_newest_first():
    assert HEADINGS[0] == "Unreleased" and all(RELEASES), HEADINGS
    dates = [date.fromisoformat(release[2]) for release in RELEASES]
    versions = [[int(number) for number in release[1].split(".")] for release in RELEASES]
    assert dates == sorted(dates, reverse=True) and versions == sorted(versions, reverse=True)


def test_the_newest_release_is_the_one_that_is_packaged_and_cited():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    version, day = RELEASES[0].groups()
    assert version == PROJECT["version"] == citation["version"]
    assert day == str(citation["date-released"])
