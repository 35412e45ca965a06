"""Long traces, made of a recorded one."""

import gzip
import json
from pathlib import Path

from course.recordings.recording import recorded_lesson

MARK = "ProfilerStep#"
IDS = 10**6  # more than any id in a recorded trace


def eager_trace() -> Path:
    """Path of the first lesson's eager trace, as recorded on the reference GPU."""
    return recorded_lesson("start_here").trace("eager")


def build_trace(path: Path, size: float, steps: int, recorded: Path | None = None) -> int:
    """Repeat a recorded trace's events until they are
    about size bytes of JSON; return how many times.

    Every copy gets later times and ids of its own, as in a longer recording: readers that join on
    ids would otherwise meet pairs by the million. steps: how many step marks of equal length span
    the whole, as in a trace of a larger model; 0 repeats the recorded marks, as in a longer trace
    of the same model. recorded: its path, else the first lesson's eager trace.
    """
    content = json.loads(gzip.decompress(Path(recorded or eager_trace()).read_bytes()))
    events = [event for event in content["traceEvents"] if "dur" in event or event["ph"] in "sf"]
    if steps:
        events = [event for event in events if not event["name"].startswith(MARK)]
    start = min(event["ts"] for event in events)
    span = max(event["ts"] + event.get("dur", 0) for event in events) - start
    copies = max(1, round(size / len(json.dumps(events))))
    with gzip.open(path, "wt", compresslevel=1) as file:
        file.write('{"traceEvents": [{"ph": "M", "name": "process_name", "pid": 1, "args": {}}')
        for number in range(copies):
            file.writelines(",\n" + json.dumps(_moved(event, number, span)) for event in events)
        file.writelines(",\n" + json.dumps(mark) for mark in _marks(steps, start, copies * span))
        file.write("]}\n")
    return copies


def _moved(event, copy, span):
    """The event as it is in a copy: later, and with ids of its own."""
    moved = event | {"ts": event["ts"] + copy * span}
    if "id" in event:
        moved["id"] += copy * IDS
    if event["name"].startswith(MARK):
        moved["name"] = f"{MARK}{int(event['name'].removeprefix(MARK)) + 1000 * copy}"
    ids = {
        key: event["args"][key] + copy * IDS
        for key in ("correlation", "External id")
        if key in event.get("args", ())
    }
    return moved | {"args": event["args"] | ids} if ids else moved


def _marks(count, start, span):
    """count steps of equal length that span the whole trace."""
    mark = {
        "ph": "X",
        "cat": "user_annotation",
        "pid": 1,
        "tid": 1,
        "dur": span / max(1, count),
        "args": {},
    }
    return [
        mark | {"name": f"{MARK}{number}", "ts": start + number * mark["dur"]}
        for number in range(count)
    ]
