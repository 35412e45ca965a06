"""What can this machine do?  python -m course.commands.doctor"""

import sys
from collections.abc import Iterator

import torch
from packaging.version import Version

from course.machine import machine, recorded_only_notices
from course.paths import CONFORMANCE, REFERENCE_GPU, TRACES

MINIMUM_PYTHON, MINIMUM_TORCH = (3, 11), (2, 11)


def count_profiled_kernels() -> int:
    """How many kernels torch.profiler sees of one addition on the GPU (1 where it works)."""
    from torch.profiler import ProfilerActivity, profile

    one = torch.ones(1, device="cuda")
    with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as profiler:
        one.add_(1)
        torch.cuda.synchronize()
    return sum(event.device_type == torch.autograd.DeviceType.CUDA for event in profiler.events())


def report() -> Iterator[tuple[str, str]]:
    """Yield for every check a mark and a sentence:
    what is fine, what you would gain, or what to fix.

    [OK] what is there. [--] what is not needed, and what
    it would bring. [FAIL] what keeps lessons from running.
    """
    found, live = machine(), torch.cuda.is_available()
    fine = sys.version_info >= MINIMUM_PYTHON
    yield marked_line(fine, f"Python {found['python']}", "install Python 3.11 or newer")
    fine = Version(torch.__version__).release >= MINIMUM_TORCH
    fix = "run `make lab`, which installs the tested version"
    yield marked_line(fine, f"torch {found['torch']}", fix)
    yield from gpu_report(found) if live else [("[--]", why_no_gpu(found))]
    lessons = len(set((TRACES / REFERENCE_GPU).glob("*.json")) - {CONFORMANCE})
    restore = "restore traces/ with git"
    there = f"{lessons} recorded lessons in traces/{REFERENCE_GPU}"
    yield marked_line(lessons > 0, there, restore)
    mode = "live on this GPU" if live else "as recorded" if lessons else "not at all"
    yield marked_line(live or lessons > 0, f"%%gpu cells run {mode}", f"find a GPU, or {restore}")


def marked_line(fine: bool, what: str, fix: str) -> tuple[str, str]:
    """A check's mark and sentence: what was found, and where that is not fine, the fix."""
    return ("[OK]", what) if fine else ("[FAIL]", f"{what}: {fix}")


def gpu_report(found: dict) -> Iterator[tuple[str, str]]:
    """The checks of a machine on which torch sees a GPU."""
    versions = f"driver {found['driver']}, torch built for CUDA {found['cuda']}"
    yield "[OK]", f"GPU {found['gpu']}, {versions}"
    gib = torch.cuda.get_device_properties(0).total_memory / 2**30
    small = "" if gib > 7 else ": lessons are made for 8 GB: watch each one's stated need"
    yield "[--]" if small else "[OK]", f"GPU memory {gib:.0f} GiB{small}"
    seen = count_profiled_kernels()
    fix = "close other profilers, and allow access to CUPTI"
    yield marked_line(seen == 1, f"torch.profiler saw {seen} of 1 kernels", fix)
    for sentence in recorded_only_notices():
        yield "[--]", sentence


def why_no_gpu(found: dict) -> str:
    """What a machine without a GPU gains from one, and what is between torch and the GPU if it has
    one.
    """
    if not found["driver"]:
        missing = "install NVIDIA's driver, or pass the GPU into the container (--gpus all)"
    elif not found["cuda"]:
        built = "this torch is built for the CPU only: run `make clean`, then `make lab`"
        missing = f"the driver is there ({found['driver']}), but {built}"
    else:
        there = f"driver {found['driver']} and CUDA {found['cuda']} are there"
        missing = f"{there}: look at CUDA_VISIBLE_DEVICES"
    gain = "no GPU: lessons play recordings; with one they run live."
    return f"{gain} If this machine has one: {missing}"


def main() -> int:
    """Print the report; returns 1 if lessons can run neither live nor recorded, else 0."""
    lines = list(report())
    for sign, sentence in lines:
        print(f"{sign:<6} {sentence}")
    return int(lines[-1][0] == "[FAIL]")


if __name__ == "__main__":
    sys.exit(main())
