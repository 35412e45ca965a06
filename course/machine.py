"""What this machine has: its GPU, driver and versions, and what some lessons need beyond
one GPU.
"""

import ast
import json
import os
import platform
import re
import subprocess
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from shlex import quote

from packaging.version import Version

from course import ranks
from course.paths import NOTEBOOKS, LessonError

NEEDS_GPU = "needs a CUDA GPU, and torch sees none here (`make doctor` says why)."
RANKS_SHARE_GPU = (2, 30)  # from this version of NCCL on, several ranks can share a GPU
EXTRAS = {  # import name: extra of the project
    "cuda.core": "core",
    "megatron": "megatron",
    "transformer_engine": "te",
    "transformers": "lm",
}


class NeedsMore(LessonError):
    """A lesson that is to be recorded needs GPUs or packages that this machine lacks."""


def gpu_name() -> str | None:
    """The name of this machine's GPU, or None without one."""
    import torch  # here, because playing a recording needs no torch

    return torch.cuda.get_device_name() if torch.cuda.is_available() else None


def machine() -> dict[str, str | None]:
    """What the measurements depend on: GPU, driver, CUDA, CPU, torch and Python, as strings."""
    import torch

    return {
        "gpu": gpu_name(),
        "driver": driver_version(),
        "cuda": torch.version.cuda,
        "cpu": cpu_name(),
        "torch": torch.__version__,
        "python": platform.python_version(),
    }


def cpu_name() -> str | None:
    """The model of this machine's CPU, which sets the time of an eager step; None if it is
    unknown.
    """
    file = Path("/proc/cpuinfo")  # of Linux
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    model = re.search(r"^model name\s*: *(.+)", text, re.MULTILINE)
    return model[1] if model else platform.processor() or None


def driver_version() -> str | None:
    """The NVIDIA driver's version, or None where nvidia-smi finds no driver."""
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.stdout.split("\n")[0].strip()


def missing(gpus: int = 1, needs: Sequence[str] = (), share_gpu: bool = False) -> list[str]:
    """What this machine lacks of further GPUs and of these packages (import names, or such as
    "torch>=2.15"), each with how to get it.

    Ranks may share a GPU if share_gpu or CUDA_GRAPHS_SHARE_GPU says so.
    """
    lacking = [how_to_get(package) for package in needs if not is_installed(package)]
    if has_too_few_gpus(gpus):
        import torch

        there = torch.cuda.device_count()
        able = there and torch.cuda.nccl.version() >= RANKS_SHARE_GPU
        if not (able and (share_gpu or ranks.SHARE in os.environ)):
            option = f"; with {ranks.SHARE}=1 the ranks share it" if able else ""
            other = ", or one with PyTorch 2.15" if share_gpu else ""
            has = f"this machine has {there or 'none'}{option}"
            lacking.insert(0, f"{gpus} GPUs ({has}){other}")
    return lacking


def has_too_few_gpus(gpus: int) -> bool:
    """Whether this machine has fewer CUDA GPUs, so that ranks would share one."""
    if gpus == 1:
        return False
    import torch

    return torch.cuda.device_count() < gpus


def recording_notice(about: dict, gpus: int, lacking: list[str]) -> str:
    """The Markdown that says where a recording comes from, and what would be needed to run live."""
    host = f", host CPU {about['cpu']}" if about.get("cpu") else ""
    told = (
        f"**Recorded**: cells marked `%%gpu` show what they gave on {gpus_in_words(about, gpus)} "
        f"(torch {about['torch']}{host}, {about['date']}). All other cells run on this machine, on "
        "the recorded values, and you can change them."
    )
    needs = f" To run live, this lesson needs {' and '.join(lacking)}." if lacking else ""
    return told + needs


def gpus_in_words(about: dict, gpus: int) -> str:
    """The GPUs that a recording was made on, in words."""
    if gpus == 1:
        return f"an {about['gpu']}"
    if about.get("gpus") == 1:
        return f"an {about['gpu']} that {gpus} processes shared"
    return f"{about.get('gpus', 'several')} GPUs of the type {about['gpu']}"


def is_installed(need: str) -> bool:
    """Whether the package of that import name is installed, in that version or a newer one.

    cuda.core is a part of the package cuda, which PyTorch brings along, but not with that part.
    """
    package, _, least = need.partition(">=")
    try:
        there = find_spec(package) is not None
    except ModuleNotFoundError:  # not even the package that it is a part of
        return False
    return there and (not least or Version(version(package)) >= Version(least))


def how_to_get(package: str) -> str:
    """The package, and the command that installs it."""
    extra = EXTRAS.get(package) or EXTRAS.get(package.partition(".")[0])
    what = f"-e .[{extra}]" if extra else quote(package)
    return f"the package {package} (`pip install {what}`)"


def missing_for_lesson(path: Path) -> list[str]:
    """What this machine lacks to run that lesson live, as the call that opens it says."""
    cells = json.loads(path.read_bytes())["cells"]
    sources = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    calls = [node for node in ast.walk(ast.parse(sources[0])) if isinstance(node, ast.Call)]
    keywords = {word.arg: ast.literal_eval(word.value) for word in calls[0].keywords if word.arg}
    asked = {name: keywords[name] for name in ("gpus", "needs", "share_gpu") if name in keywords}
    return missing(**asked)


def recorded_only_notices(folder: Path = NOTEBOOKS) -> Iterator[str]:
    """A sentence for each lesson that plays its recording even on this machine's GPU."""
    for path in sorted(folder.glob("*.ipynb")):
        if needed := missing_for_lesson(path):
            yield f"{path.name} plays its recording: live, it needs {' and '.join(needed)}"


if __name__ == "__main__":  # before the lessons run as tests
    if gpu_name():
        print(*recorded_only_notices(), sep="\n")
    else:
        print("Without a CUDA GPU, every lesson plays its recording.")
