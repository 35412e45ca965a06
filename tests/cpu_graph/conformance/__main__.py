"""Record how the programs end on this machine's GPU, beside what other versions of torch gave."""

import json
import sys
import time
from datetime import UTC, datetime

import torch

from course.commands.record import gpu_slug
from course.paths import TRACES
from tests.cpu_graph.conformance import outcomes

if not torch.cuda.is_available():
    sys.exit("Needs a CUDA GPU.")
started, gpu = time.perf_counter(), torch.cuda.get_device_name()
found = outcomes.on_gpu()
path = TRACES / gpu_slug() / "conformance.json"
versions = json.loads(path.read_text()) if path.exists() else {}
about = {
    "gpu": gpu,
    "torch": torch.__version__,
    "cuda": torch.version.cuda,
    "python": sys.version.split()[0],
}
about |= {
    "date": datetime.now(UTC).date().isoformat(),
    "seconds": round(time.perf_counter() - started, 1),
}
version = torch.__version__.split("+")[0]
path.parent.mkdir(parents=True, exist_ok=True)
path.write_text(
    json.dumps(versions | {version: {"about": about, "outcomes": found}}, indent=1, sort_keys=True)
    + "\n"
)
unlike = [
    name
    for name, ending in found.items()
    if not outcomes.agrees(outcomes.PROGRAMS[name].gives, ending)
]
for name in unlike:
    print(f"{name}: {found[name]}, where {outcomes.PROGRAMS[name].gives} was expected")
print(f"{len(found)} programs in {about['seconds']} s, {len(unlike)} not as expected: {path}")
