"""Read the events of a JSON trace one after the other: memory goes with one event, not with the file."""

import codecs
import gzip
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

MIB = 1 << 20
PIECE, LARGEST = MIB, 16 * MIB  # how much is read at once; how long one event may be
LIMIT_MIB, RATIO = 1024, 200  # a gzip may unpack to this much, and to so many times its size
START = re.compile(r'\s*\[\s*|\s*\{.*?"traceEvents"\s*:\s*\[\s*', re.DOTALL)
NEXT = re.compile(r"\s*(?:(\])|,)\s*")


def read_events(path: Path, limit_mib: int | None = None) -> Iterator[Any]:
    """Iterate over the elements of traceEvents, or of the array that is the whole file, gzipped or not.

    limit_mib: how much a gzip may unpack to, else LIMIT_MIB and RATIO times its size (a trace packs to a tenth or a
    thirtieth). Raises ValueError, or what gzip and the file system raise.
    """
    pieces, decode = _pieces(path, limit_mib), json.JSONDecoder().raw_decode
    text = next(pieces, "")
    while not (start := START.match(text)):
        text = _longer(text, pieces, "it is no JSON with traceEvents")
    at, last, number = start.end(), text.startswith("]", start.end()), 0
    while not last:
        try:
            event, end = decode(text, at)
            found = NEXT.match(text, end)
            last, following = found[1], found.end()
        except (ValueError, TypeError) as error:
            cause = f"event {number} is damaged ({getattr(error, 'msg', 'nothing follows it')})"
            text, at = _longer(text[at:], pieces, cause), 0
        else:
            yield event
            number, at = number + 1, following
    sum(1 for _ in pieces)  # a damaged gzip says so at its end


def _longer(text, pieces, cause):
    """The text and the file's next piece. Raises ValueError with the cause where more is no help."""
    piece = next(pieces, "") if len(text) < LARGEST else ""
    if not piece:
        raise ValueError(cause)
    return (text + piece).lstrip()


def _pieces(path, limit_mib):
    if path.exists() and not path.is_file():  # a pipe or a device might never end
        raise ValueError("it is no regular file")
    with path.open("rb") as file:
        packed, size = file.read(2) == b"\x1f\x8b", file.seek(0, 2)
        limit = (limit_mib or min(LIMIT_MIB, max(64, RATIO * size // MIB))) * MIB
        file.seek(max(0, size - 4))
        if packed and int.from_bytes(file.read(), "little") > limit:  # its own word: look before parsing
            sum(1 for _ in _unpacked(file, limit))
        file.seek(0)
        binary = _unpacked(file, limit) if packed else iter(lambda: file.read(PIECE), b"")
        yield from map(codecs.getincrementaldecoder("utf-8-sig")("replace").decode, binary)


def _unpacked(file, limit):
    file.seek(0)
    with gzip.open(file) as unpacked:
        while piece := unpacked.read(PIECE):
            if unpacked.tell() > limit:
                raise ValueError(f"it unpacks to more than {limit // MIB} MiB: raise limit_mib (MIB) if you trust it")
            yield piece
