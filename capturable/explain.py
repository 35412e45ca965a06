"""What does this message mean?  python -m capturable.explain [--json] "<message>"   (or a log on standard input)

Finds the telling line, wherever it stands, and says what it knows: one cause, or the list of causes
of a message that names none, and how to tell them apart. Needs the standard library alone.
"""

import argparse
import json
import os
import re
import sys
from dataclasses import asdict

from capturable.causes import Entry, Hit, entries, find
from capturable.similar_causes import nearest

NAMES_NO_CAUSE = ("several", "reasons")
__all__ = ["Entry", "answer", "describe", "entries", "explain", "find", "main", "nearest"]


def explain(text: str) -> list[Entry]:
    """The entries whose message occurs in a message, traceback or log, the best first; [] if none is known.

    An entry of the kind several or reasons says that the message has many causes; they follow it.
    """
    return [hit.entry for hit in find(text)]


def describe(entry: Entry) -> str:
    """Title, cause, fix and where to read, as plain text."""
    lines = [entry.title, f"  cause: {entry.cause}", f"  fix:   {entry.fix}"]
    lines += [f'  see:   the lesson "Failure gallery", under "{entry.title}"'] if entry.exhibit else []
    return "\n".join(lines + ([f"  read:  notebooks/*_{entry.lesson}.ipynb"] if entry.lesson else []))


def answer(text: str, hits: list[Hit]) -> str:
    """What the command prints about a text in which hits were found."""
    if not hits:
        likely = "\n\n".join(map(describe, nearest(text)))
        head = "By its words it may be about one of these:"
        return "No message that is known here. " + (f"{head}\n\n{likely}" if likely else "Nothing is like it.")
    first = hits[0]
    parts = [f"line {first.number + 1}: {first.line[:200]}\n"] if "\n" in text.strip() else []
    parts += [describe(first.entry), *_others(hits)]
    if not re.search("captur|graph", text, re.I) and first.entry.kind != "silent":
        parts.append("\nWhat you gave names no capture or graph, so it may well have another cause.")
    return "\n".join(parts)


def _others(hits):
    """The other causes of the first hit's message, and how to tell them apart."""
    first, others = hits[0], [hit.entry for hit in hits[1:] if hit.message == hits[0].message]
    others = [entry for entry in others if entry.kind in ("error", "warning")]
    if not others:
        return []
    several = first.entry.kind in NAMES_NO_CAUSE
    head = "How to tell its causes apart:" if several else "The same message has other causes too:"
    told = {entry.title: entry.tell or entry.cause.split(". ")[0].rstrip(".") for entry in others}
    return ["\n" + head, *(f"  {title}: {tell}." for title, tell in told.items())]


def main(arguments: list[str] | None = None, program: str = "python -m capturable.explain") -> int:
    """Explain the message given, or standard input; returns 0, 1 if it is unknown, 2 if there is none."""
    parser = argparse.ArgumentParser(prog=program, description=__doc__.splitlines()[0])
    parser.add_argument("message", nargs="*", help="a message, traceback or log; without it, standard input is read")
    parser.add_argument("--json", action="store_true", help="print everything that is known about it as JSON")
    options = parser.parse_args(arguments)
    text = " ".join(options.message) or _standard_input()
    if not text.strip():
        parser.print_usage(sys.stderr)
        return 2
    hits = find(text)
    try:
        print((_as_json if options.json else answer)(text, hits), flush=True)
    except BrokenPipeError:  # as with | head -1
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0 if hits else 1


def _standard_input():
    if sys.stdin is None or sys.stdin.isatty():
        return ""
    text = getattr(sys.stdin, "buffer", sys.stdin).read()
    return text.decode("utf-8", "replace") if isinstance(text, bytes) else text


def _as_json(text, hits):
    """status (known, several or unknown), the telling line, and the entries, or guesses for an unknown text."""
    if not hits:
        return json.dumps({"status": "unknown", "guesses": [asdict(entry) for entry in nearest(text)]}, indent=1)
    status = "several" if hits[0].entry.kind in NAMES_NO_CAUSE else "known"
    line = {"number": hits[0].number + 1, "text": hits[0].line}
    return json.dumps({"status": status, "line": line, "entries": [asdict(hit.entry) for hit in hits]}, indent=1)


if __name__ == "__main__":
    sys.exit(main())
