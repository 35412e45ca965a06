"""What does this message mean?  capturable explain
[--json] "<message>"   (or a log on standard input)

Finds the telling line, wherever it stands, and says what it knows: one cause, or the list of causes
of a message that names none, and how to tell them apart. Needs the standard library alone.
"""

import argparse
import json
import os
import re
import sys
from dataclasses import asdict
from typing import Any

from capturable.causes import Entry, Hit, entries, find, standard_name
from capturable.similar_causes import nearest

NAMES_NO_CAUSE = ("several", "reasons")
OURS = re.compile(
    r"captur|(cuda|hip)[ _/.-]?graph(?!ic)|graphed|graph\.replay|graph_?pool|graph recording"
    r"|reduce-overhead|max-autotune(?!-no)|replay\w* (\w+ ){0,4}graph",
    re.I,
)
FOREIGN = {  # what other things are called graphs, or fail on a GPU
    "TensorFlow": re.compile(r"tensorflow|\btf\.|Graph execution error", re.I),
    "JAX or XLA": re.compile(r"\bjax(lib)?\b|\bxla\b|XlaRuntimeError", re.I),
    "PyTorch's autograd graph": re.compile(
        r"backward through the graph a second time|retain_graph", re.I
    ),
    "a plain error of a kernel's arguments": re.compile(r"device-side assert", re.I),
    "another library's graph or capture": re.compile(
        r"networkx|graphviz|torchviz|neo4j|graphql|pcap\b|wireshark"
        r"|capture[_ ]groups?|replay[_ ]?buffer|event log",
        re.I,
    ),
}
PYTORCHS = re.compile(
    r"torch|cuda|hip[ _]?graph|vllm|sglang|megatron|graphed|reduce-overhead", re.I
)
__all__ = ["Entry", "answer", "describe", "entries", "explain", "find", "main", "nearest"]
SAID = {  # in the command and on the site; {} is a name or a number
    "other": "This looks like {}, not like CUDA graphs of PyTorch.",
    "no_graph": "This names no capture and no CUDA graph, so it may well have another cause. "
    "If a graph is involved:",
    "unknown": "No message that is known here.",
    "nothing": "Nothing is like it.",
    "guesses": "These are guesses, by the words alone; it may be about one of them, or about none:",
    "decided": "The same message has {} other causes; the lines near it point to this one.",
    "tell_apart": "How to tell its causes apart:",
    "others_too": "The same message has other causes too:",
}


def explain(text: str) -> list[Entry]:
    """The entries whose message occurs in a message, traceback or log, the best first; [] if none
    is known.

    An entry of the kind several or reasons says that the message has many causes; they follow it.
    """
    return [hit.entry for hit in find(text)]


def describe(entry: Entry) -> str:
    """Names, cause and fix, as plain text."""
    return "\n".join([names(entry), f"  cause: {entry.cause}", f"  fix:   {entry.fix}"])


def names(entry: Entry) -> str:
    """The standard name of a cause, and the title where that is another one."""
    known = standard_name(entry)
    return known if known == entry.title else f"{known}: {entry.title}"


def caveat(text: str, hits: list[Hit]) -> str:
    """What makes an answer doubtful: the text speaks of no graph, or of another framework's;
    else ""."""
    other = next((name for name, sign in FOREIGN.items() if sign.search(text)), None)
    if other and not (OURS.search(text) and PYTORCHS.search(_without_names(text))):
        return SAID["other"].format(other)
    if OURS.search(text) or any(hit.entry.kind == "silent" for hit in hits):
        return ""
    if not hits:
        return ""
    return SAID["no_graph"]


def _without_names(text: str) -> str:
    """A text without the driver's names of errors, which programs of any framework quote."""
    return re.sub(r"\bcuda_?error\w*", "", text, flags=re.I)


def answer(text: str, hits: list[Hit]) -> str:
    """What the command prints about a text in which hits were found."""
    doubt = caveat(text, hits)
    likely = guesses(text, hits, doubt)
    told = [SAID["guesses"], *map(describe, likely)] if likely else [SAID["nothing"]]
    if not hits:
        return "\n\n".join([SAID["unknown"], *([doubt] if doubt else told)])
    first = hits[0]
    parts = [f"{doubt}\n"] if doubt else []
    parts += [f"line {first.number + 1}: {first.line[:200]}\n"] if "\n" in text.strip() else []
    more = ["", *told] if only_around(hits) else _others(hits)
    return "\n".join([*parts, describe(first.entry), *more])


def guesses(text: str, hits: list[Hit], doubt: str) -> list[Entry]:
    """The causes that a text is most like, where none of its messages names one."""
    unanswered = only_around(hits) if hits else not doubt
    return nearest(text) if unanswered else []


def only_around(hits: list[Hit]) -> bool:
    """Whether the first message is that of a server around the failure."""
    return bool(hits) and hits[0].entry.kind == "after"


def _others(hits: list[Hit]) -> list[str]:
    """The other causes of the first hit's message, and how to tell them apart."""
    first = hits[0]
    others = [hit.entry for hit in hits[1:] if hit.message == first.message]
    others = [entry for entry in others if entry.kind in ("error", "warning")]
    if not others:
        return []
    decided = first.rank[3] < 0  # the code or the log beside the message has named it
    several = first.entry.kind in NAMES_NO_CAUSE
    if decided and not several:
        return ["\n" + SAID["decided"].format(len(others))]
    head = SAID["tell_apart"] if several else SAID["others_too"]
    told = {
        standard_name(entry): entry.tell or entry.cause.split(". ")[0].rstrip(".")
        for entry in others
    }
    return ["\n" + head, *(f"  {known}: {tell}." for known, tell in told.items())]


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
    hits = find(text)
    try:
        print((_as_json if options.json else answer)(text, hits), flush=True)
    except BrokenPipeError:  # as with | head -1
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0 if hits else 1


def _standard_input() -> str:
    if sys.stdin is None or sys.stdin.isatty():
        return ""
    text = getattr(sys.stdin, "buffer", sys.stdin).read()
    return text.decode("utf-8", "replace") if isinstance(text, bytes) else text


def _as_json(text: str, hits: list[Hit]) -> str:
    """status (known, several or unknown), a caveat, the telling line, and the entries, or
    guesses if it is unknown, or both if the message is that of a server around it."""
    doubt = caveat(text, hits)
    likely = list(map(_plain, guesses(text, hits, doubt)))
    if not hits:
        return json.dumps({"status": "unknown", "caveat": doubt, "guesses": likely}, indent=1)
    status = "several" if hits[0].entry.kind in NAMES_NO_CAUSE else "known"
    line = {"number": hits[0].number + 1, "text": hits[0].line}
    found = {
        "status": status,
        "caveat": doubt,
        "line": line,
        "entries": [_plain(hit.entry) for hit in hits],
    }
    if only_around(hits):
        found["guesses"] = likely
    return json.dumps(found, indent=1)


def _plain(entry: Entry) -> dict[str, Any]:
    """An entry with its standard name, without what belongs to a course."""
    known = {"name": standard_name(entry)} | asdict(entry)
    return {key: value for key, value in known.items() if key not in ("lesson", "exhibit")}


if __name__ == "__main__":
    sys.exit(main())
