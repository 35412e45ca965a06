"""The rules of `capturable explain` as data for the site: docs/static/explain.js reads them.

Pages with the box that takes an error, and the search, load rules.js; no other does.
"""

import json
import re
from dataclasses import asdict
from typing import Any

from capturable import causes, explain, similar_causes
from course.lessons import lesson_file
from docs.search import GALLERY, SYNONYMS, questions

INLINE = re.compile(r"\A\(\?([a-z]+)\)")


def js_regex(one: str | re.Pattern[str], flags: int = 0) -> list[str]:
    """A regular expression for JavaScript: its source and its flags."""
    source = one if isinstance(one, str) else one.pattern
    flags |= 0 if isinstance(one, str) else one.flags
    letters = {"i"} if flags & re.I else set()
    if found := INLINE.match(source):
        letters |= set(found[1])
        source = source[found.end() :]
    return [source, "".join(sorted(letters))]


def rules() -> dict[str, Any]:
    """All that explain.js needs, from the modules of capturable."""
    return {
        "entries": [entry(one) for one in causes.entries()],
        "complaints": [
            {"title": one.title, "words": js_regex(one.words, re.I), "causes": one.causes}
            for one in causes.complaints()
        ],
        "levels": causes.LEVELS,
        "undecided": causes.UNDECIDED,
        "near": causes.NEAR,
        "first": causes.FIRST,
        "number": js_regex(causes.NUMBER),
        "before_number": js_regex(causes.BEFORE_NUMBER),
        "consequence": causes.CONSEQUENCE,
        "colour": js_regex(causes.COLOUR),
        "many": explain.NAMES_NO_CAUSE,
        "named": js_regex(similar_causes.NAMED),
        "request": js_regex(similar_causes.REQUEST),
        "guessed": similar_causes.GUESSED,
        "products": {name: js_regex(sign, re.I) for name, sign in similar_causes.PRODUCTS.items()},
        "weights": similar_causes.bm25_weights(),
        "less": similar_causes.LESS,
        "least": similar_causes.LEAST,
        "reported": js_regex(similar_causes.REPORTED),
        "fixed": js_regex(similar_causes.FIXED),
        "field": js_regex(similar_causes.FIELD),
        "no_error": js_regex(similar_causes.NO_ERROR),
        "typed": similar_causes.TYPED,
        "unclear": similar_causes.UNCLEAR,
        "told": explain.TOLD,
        "known": explain.SAID,
    }


def entry(one: causes.CauseEntry) -> dict[str, Any]:
    """A cause, with its place as a pattern and the page about it: an exhibit, or a lesson."""
    lesson = GALLERY if one.exhibit else one.lesson
    page = f"notebooks/{lesson_file(lesson).stem}" if lesson else ""
    place = js_regex(one.place, re.I) if one.place else None
    unread = ("words", "heading", "index_note")
    told = {key: value for key, value in asdict(one).items() if key not in unread}
    names = {"name": causes.standard_cause_name(one), "names": explain.entry_title(one)}
    return told | names | {"place": place, "page": page, "more": explain.lesson_about(one)}


def rules_js() -> str:
    """rules.js: the rules, and what the search knows beside its index."""
    page = f"notebooks/{lesson_file(GALLERY).stem}"
    known = {"explain": rules(), "gallery": page, "questions": questions(), "synonyms": SYNONYMS}
    return f"const RULES = {json.dumps(known, separators=(',', ':'), ensure_ascii=False)};\n"
