"""Record how the programs end on this machine's GPU, beside what other versions of torch gave."""

import json
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

import torch

from course.commands.record import gpu_slug
from course.paths import ROOT, TRACES
from tests.cpu_graph.conformance import outcomes

RECORDER = "tests.cpu_graph.conformance"
KILLED = {"kills": "the process"}  # how a program ends that was begun and has no ending


def run(first: int, endings: Path) -> None:
    """Run the programs from the first on, and write each name, then each ending, on a line."""
    names = list(outcomes.PROGRAMS)[first:]
    with endings.open("a", encoding="utf-8") as out:
        for name, ending in outcomes.on_gpu(names):
            print(json.dumps([name, ending]), file=out, flush=True)


def all_endings() -> dict[str, dict]:
    """How all programs end, in a process; one that a program kills is followed by another.

    Raises RuntimeError if a process ends before its first program.
    """
    found: dict[str, dict] = {}
    with tempfile.TemporaryDirectory() as folder:
        endings = Path(folder, "endings")
        while len(found) < len(outcomes.PROGRAMS):
            command = [sys.executable, "-m", RECORDER, str(len(found)), str(endings)]
            status = subprocess.run(command, cwd=ROOT).returncode
            lines = endings.read_text(encoding="utf-8").splitlines() if endings.exists() else []
            begun = len(found)
            found = {name: ending or KILLED for name, ending in map(json.loads, lines)}
            if len(found) == begun:
                raise RuntimeError(f"The process ended with {status} before its first program.")
    return found


def main() -> None:
    """Record all programs, and print which end otherwise than they say."""
    if not torch.cuda.is_available():
        sys.exit("Needs a CUDA GPU.")
    started = time.perf_counter()
    found = all_endings()
    path = TRACES / gpu_slug() / "conformance.json"
    versions = json.loads(path.read_text()) if path.exists() else {}
    about = {
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "python": sys.version.split()[0],
        "date": datetime.now(UTC).date().isoformat(),
        "seconds": round(time.perf_counter() - started, 1),
    }
    versions[torch.__version__.split("+")[0]] = {"about": about, "outcomes": found}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(versions, indent=1, sort_keys=True) + "\n")
    unlike = [
        name
        for name, ending in found.items()
        if not outcomes.agrees(outcomes.PROGRAMS[name].gives, ending)
    ]
    for name in unlike:
        print(f"{name}: {found[name]}, where {outcomes.PROGRAMS[name].gives} was expected")
    print(f"{len(found)} programs in {about['seconds']} s, {len(unlike)} not as expected: {path}")


if __name__ == "__main__":
    if sys.argv[1:]:
        run(int(sys.argv[1]), Path(sys.argv[2]))
    else:
        main()
