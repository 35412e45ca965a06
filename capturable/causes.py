"""The causes of causes.json, and which of them a message, a traceback or a whole log points to."""

import json
import re
from bisect import bisect_right
from dataclasses import dataclass, replace
from functools import cache
from itertools import accumulate
from pathlib import Path

LEVELS = {"error": 1, "several": 2, "after": 2, "warning": 4, "reasons": 5, "silent": 7}
# the message has several causes, and nothing near it points to this one
UNDECIDED = {"error": 3, "warning": 6}
FIRST = ("error", "several")
NEAR = 150, 20  # lines before and after the telling line, where a place is looked for
NUMBER = re.compile(r"(90[0-8]|700)(?!\d)")
BEFORE_NUMBER = re.compile(r"(error|failure|code|status|returning|curesult)( code)?\W{0,3}$")
CONSEQUENCE = "during handling of the above exception"  # what follows in a traceback came later
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True)
class CauseEntry:
    """A cause. kind: error, several (its message names no cause), after (a consequence), warning,
    reasons (a warning that names its cause in words of its own) or silent.

    messages: texts it is known by. place: a regular expression for the code or log near them;
    needs_place: without it, it is no answer. tell: how to tell it from other causes of the message.
    words: how people speak of it, for likeness. lesson: the name of the course's lesson about it,
    heading: where in it. exhibit: shown in the course's failure gallery, index_note: what its index
    adds to a message that others have too, or to a symptom.
    """

    title: str
    kind: str
    messages: tuple[str, ...]
    cause: str
    fix: str
    place: str = ""
    needs_place: bool = False
    tell: str = ""
    words: str = ""
    lesson: str = ""
    heading: str = ""
    exhibit: bool = False
    index_note: str = ""


@dataclass(frozen=True)
class CauseMatch:
    """An entry found in a text: its rank (the smallest is best), the message, the line's number
    from 0, the line."""

    entry: CauseEntry
    rank: tuple
    message: str
    number: int
    line: str


@dataclass(frozen=True)
class ComplaintKind:
    """What people complain of. words: a regular expression for it; causes: titles of all entries
    that it is known to come from."""

    title: str
    words: str
    causes: list[str]


@cache
def _causes_json() -> dict:
    return json.loads((Path(__file__).parent / "causes.json").read_text(encoding="utf-8"))


@cache
def cuda_errors() -> dict[int, str]:
    """The texts of CUDA's errors by their numbers, as cudaGetErrorString words them."""
    return {int(number): names[0] for number, names in _causes_json()["codes"].items()}


@cache
def complaints() -> tuple[ComplaintKind, ...]:
    """The few kinds of failures that have many causes."""
    return tuple(ComplaintKind(**complaint) for complaint in _causes_json()["complaints"])


@cache
def entries() -> tuple[CauseEntry, ...]:
    """All causes, the gallery's exhibits first and in their order. A number among messages
    stands for its names."""
    known = _causes_json()
    texts = {
        int(number): [*names, f"cuda error {number}"] for number, names in known["codes"].items()
    }
    messages = [
        [text for one in entry["messages"] for text in texts.get(one, [one])]
        for entry in known["entries"]
    ]
    return tuple(
        CauseEntry(**entry | {"messages": tuple(said)})
        for entry, said in zip(known["entries"], messages, strict=True)
    )


@cache
def standard_cause_names() -> dict[str, str]:
    """The standard name of a cause and the error's number, by the title of its entry; of an exhibit
    it is the heading. A cause whose title is the standard name has none."""
    return dict(_causes_json()["terms"])


def standard_cause_name(entry: CauseEntry) -> str:
    """The standard name of a cause, or the title of one without."""
    return standard_cause_names().get(entry.title, entry.title)


def entry_of(title: str) -> CauseEntry:
    """The entry with a title."""
    return next(entry for entry in entries() if entry.title == title)


def find_causes(text: str) -> list[CauseMatch]:
    """Entries whose message occurs in the text, wherever its line stands, the best first.

    Errors come before warnings, the first line before later ones, in a line the longest message,
    and of its causes the one whose place is near (the longest match). Takes time linear in the
    text.
    """
    lines = (COLOUR.sub("", text) if "\x1b" in text else text).splitlines()
    squeezed = list(map(_fold_case_and_space, lines))
    starts = [0, *accumulate(len(line) + 1 for line in squeezed)][: len(lines)]
    whole = " ".join(squeezed)
    positions = {message: whole.find(message) for message in _messages_of_entries()}
    positions |= _error_number_positions(whole)
    found = [_match_entry(entry, positions, starts, lines) for entry in entries()]
    hits = _demote_consequences([hit for hit in found if hit], squeezed)
    return sorted(hits, key=lambda hit: hit.rank)


def _demote_consequences(hits: list[CauseMatch], lines: list[str]) -> list[CauseMatch]:
    """The hits; those behind another error's handling come last, if there are some before."""
    later = next((number for number, line in enumerate(lines) if CONSEQUENCE in line), len(lines))
    if not any(hit.number < later and hit.entry.kind in FIRST for hit in hits):
        return hits
    behind = max(LEVELS.values())
    return [
        replace(hit, rank=(hit.rank[0] + behind, *hit.rank[1:])) if hit.number > later else hit
        for hit in hits
    ]


def _match_entry(
    entry: CauseEntry, positions: dict[str, int], starts: list[int], lines: list[str]
) -> CauseMatch | None:
    """Where an entry's message stands in the text, if it does."""
    said = [
        (positions[message], -len(message), message)
        for message in map(_fold_case_and_space, entry.messages)
    ]
    at, length, message = min((one for one in said if one[0] >= 0), default=(-1, 0, ""))
    if at < 0:
        return None
    number = bisect_right(starts, at) - 1
    near = lines[max(0, number - NEAR[0]) : number + NEAR[1]]
    place = _nearby_match_length(entry, message, near)
    shared = message in _messages_of_entries("several", "reasons")
    undecided = shared and not place and UNDECIDED.get(entry.kind)
    if entry.needs_place and not place and not undecided:
        return None
    rank = undecided or LEVELS[entry.kind], number, length, -place
    return CauseMatch(entry, rank, message, number, lines[number].strip())


def _nearby_match_length(entry: CauseEntry, message: str, lines: list[str]) -> int:
    """The length of the longest text near the message that the entry's place fits; 0 if there is
    none."""
    if not entry.place:
        return 0
    near = "\n".join(line[:500] for line in lines)
    near = re.sub(re.escape(message), "", near, flags=re.I)  # a place stands beside it
    return max((len(match[0]) for match in re.finditer(entry.place, near, re.I)), default=0)


def _error_number_positions(whole: str) -> dict[str, int]:
    """Where "CUDA error 900", "code=900" and the like stand first, by the message that stands
    for them."""
    found = {}
    for match in NUMBER.finditer(whole):
        if BEFORE_NUMBER.search(whole, max(0, match.start() - 24), match.start()):
            found.setdefault(f"cuda error {match[0]}", match.start())
    return found


@cache
def _messages_of_entries(*kinds: str) -> set[str]:
    """All messages, squeezed, or those of some kinds of entries."""
    return {
        _fold_case_and_space(message)
        for entry in entries()
        if not kinds or entry.kind in kinds
        for message in entry.messages
    }


def _fold_case_and_space(text: str) -> str:
    return " ".join(text.lower().split())
