"""What does this message mean?  capturable explain
[--json] "<message>"   (or a log on standard input)

Finds the telling line, wherever it stands, and says what it knows: one cause, or the list of causes
of a message that names none, and how to tell them apart. Needs the standard library alone.
"""

import argparse
import json
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from capturable.causes import CauseEntry, CauseMatch, find_causes, standard_cause_name
from capturable.causes import entries as entries
from capturable.similar_causes import (
    causes_of_complaint,
    complaint_text,
    nearest,
    sort_by_likeness,
    tells_of_graph_failure,
)

NAMES_NO_CAUSE = ("several", "reasons")
OF_THE_COURSE = ("lesson", "heading", "exhibit", "index_note")  # fields of an entry
TOLD = 3  # causes for one message; guesses with cause and fix, before a list
COURSE = Path(__file__).parents[1] / "notebooks"
SAID = {  # in the command and on the site; {} is a name or a number
    "doubt": "By its words, this may well be no failure of a CUDA graph. If a graph is involved:",
    "unknown": "No message that is known here.",
    "nothing": "By its words, this seems to be no failure of a CUDA graph.",
    "guesses": "These are guesses, by the words alone; it may be about one of them, or about none:",
    "further": "It has {} further causes; the failure gallery of the course and --json have them.",
    "decided": "The same message has {} other causes; the lines near it point to this one.",
    "complaint": "Less likely, or other causes of {}, and how to tell them apart:",
    "tell_apart": "How to tell its causes apart:",
    "others_too": "The same message has other causes too:",
}


def explain(text: str) -> list[CauseEntry]:
    """The entries whose message occurs in a message, traceback or log, the best first; [] if none
    is known.

    An entry of the kind several or reasons says that the message has many causes; they follow it.
    """
    return [hit.entry for hit in find_causes(text)]


def describe(entry: CauseEntry) -> str:
    """Names, cause and fix, and where the course shows it, as plain text."""
    parts = [entry_title(entry), f"  cause: {entry.cause}", f"  fix:   {entry.fix}"]
    return "\n".join([*parts, f"  more:  {lesson_about(entry)}"] if lesson_about(entry) else parts)


def lesson_about(entry: CauseEntry) -> str:
    """The lesson about a cause, or its place in the failure gallery; a file where the course is
    near."""
    name = "failure_gallery" if entry.exhibit else entry.lesson
    file = next(COURSE.glob(f"[0-9][0-9]_{name}.ipynb"), None) if name else None
    title = f"lesson {name.replace('_', ' ')!r} of the CUDA graphs course" if name else ""
    place = f"notebooks/{file.name}" if file else title
    return f"{place}, {standard_cause_name(entry)}" if entry.exhibit else place


def entry_title(entry: CauseEntry) -> str:
    """The standard name of a cause, and the title where that is another one."""
    known = standard_cause_name(entry)
    return known if known == entry.title else f"{known}: {entry.title}"


def caveat(text: str, hits: list[CauseMatch]) -> str:
    """What makes an answer doubtful: the rest of the text does not tell of a graph; else ""."""
    certain = not hits or any(hit.entry.kind == "silent" for hit in hits)
    return "" if certain or tells_of_graph_failure(text) else SAID["doubt"]


def explanation_text(text: str, hits: list[CauseMatch]) -> str:
    """What the command prints about a text in which hits were found."""
    likely, others = guess_causes(text, hits)
    told = [SAID["guesses"], *map(describe, likely)] if likely else [SAID["nothing"]]
    told += [_causes_text(SAID["complaint"].format(complaint_text(text)), others)] if others else []
    if not hits:
        return "\n\n".join([SAID["unknown"], *told])
    first, doubt = hits[0], caveat(text, hits)
    parts = [f"{doubt}\n"] if doubt else []
    parts += [f"line {first.number + 1}: {first.line[:200]}\n"] if "\n" in text.strip() else []
    more = told if is_server_error_only(hits) else _other_causes_text(text, hits)
    return "\n\n".join(["\n".join([*parts, describe(first.entry)]), *more])


def guess_causes(text: str, hits: list[CauseMatch]) -> tuple[list[CauseEntry], list[CauseEntry]]:
    """Where no message of the text names a cause: the causes that it is most like, and the others
    of what it complains of."""
    likely = nearest(text) if not hits or is_server_error_only(hits) else []
    told, rest = likely[:TOLD], likely[TOLD:]
    others = dict.fromkeys([*rest, *(causes_of_complaint(text) if likely else [])])
    return told, [entry for entry in others if entry not in told]


def is_server_error_only(hits: list[CauseMatch]) -> bool:
    """Whether the first message is that of a server around the failure."""
    return bool(hits) and hits[0].entry.kind == "after"


def _other_causes_text(text: str, hits: list[CauseMatch]) -> list[str]:
    """The other causes of the first hit's message, and how to tell them apart."""
    others = other_causes(text, hits)
    if not others:
        return []
    if hits[0].rank[3] < 0 and hits[0].entry.kind not in NAMES_NO_CAUSE:
        # the code or the log beside the message has named it
        return [SAID["decided"].format(len(others))]
    head = "tell_apart" if hits[0].entry.kind in NAMES_NO_CAUSE else "others_too"
    further = [SAID["further"].format(len(others) - TOLD)] if len(others) > TOLD else []
    return [_causes_text(SAID[head], others[:TOLD]), *further]


def other_causes(text: str, hits: list[CauseMatch]) -> list[CauseEntry]:
    """The other causes of the first hit's message; of one that names none, also those of what the
    text complains of."""
    first = hits[0]
    others = [hit.entry for hit in hits[1:] if hit.message == first.message]
    others = [entry for entry in others if entry.kind in ("error", "warning")]
    if first.entry.kind in NAMES_NO_CAUSE:
        others += [entry for entry in causes_of_complaint(text) if entry not in others]
    return sort_by_likeness(text, others, first.message)


def _causes_text(head: str, causes: list[CauseEntry]) -> str:
    """A sentence, and a line for each cause: its name, and how to tell it from the others."""
    lines = [
        f"  {standard_cause_name(one)}: {one.tell or one.cause.split('. ')[0].rstrip('.')}."
        for one in causes
    ]
    return "\n".join([head, *dict.fromkeys(lines)])


def main(arguments: list[str] | None = None, program: str = "python -m capturable.explain") -> int:
    """Explain the message given, or standard input; returns 0, 1 if it is unknown, 2 if there is
    none."""
    parser = argparse.ArgumentParser(prog=program, description=__doc__.splitlines()[0])
    parser.add_argument(
        "message", nargs="*", help="a message, traceback or log; without it, standard input is read"
    )
    parser.add_argument(
        "--json", action="store_true", help="print everything that is known about it as JSON"
    )
    options = parser.parse_args(arguments)
    text = " ".join(options.message) or _standard_input()
    if not text.strip():
        parser.print_usage(sys.stderr)
        return 2
    hits = find_causes(text)
    try:
        print((_as_json if options.json else explanation_text)(text, hits), flush=True)
    except BrokenPipeError:  # as with | head -1
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0 if hits else 1


def _standard_input() -> str:
    if sys.stdin is None or sys.stdin.isatty():
        return ""
    text = getattr(sys.stdin, "buffer", sys.stdin).read()
    return text.decode("utf-8", "replace") if isinstance(text, bytes) else text


def _as_json(text: str, hits: list[CauseMatch]) -> str:
    """status (known, several or unknown), a caveat, the telling line, and the entries, or
    guesses if it is unknown, or both if the message is that of a server around it."""
    likely, others = guess_causes(text, hits)
    guessed = {
        "guesses": list(map(_entry_as_dict, likely)),
        "others": list(map(_entry_as_dict, others)),
    }
    if not hits:
        return json.dumps({"status": "unknown", "caveat": ""} | guessed, indent=1)
    status = "several" if hits[0].entry.kind in NAMES_NO_CAUSE else "known"
    line = {"number": hits[0].number + 1, "text": hits[0].line}
    found = {
        "status": status,
        "caveat": caveat(text, hits),
        "line": line,
        "entries": [_entry_as_dict(hit.entry) for hit in hits],
    }
    return json.dumps(found | (guessed if is_server_error_only(hits) else {}), indent=1)


def _entry_as_dict(entry: CauseEntry) -> dict[str, Any]:
    """An entry with its standard name, without what belongs to a course."""
    known = {"name": standard_cause_name(entry)} | asdict(entry)
    return {key: value for key, value in known.items() if key not in OF_THE_COURSE}


if __name__ == "__main__":
    sys.exit(main())
