"""What can this machine do?  python -m course.doctor"""

import platform
import subprocess
import sys

import torch

from course.notebooks import REFERENCE_GPU, TRACES

MINIMUM_PYTHON, MINIMUM_TORCH = (3, 11), (2, 11)


def machine():
    """What the measurements depend on: GPU, driver, CUDA, torch and Python, as a dict of strings."""
    has_gpu = torch.cuda.is_available()
    return {
        "gpu": torch.cuda.get_device_name() if has_gpu else None,
        "driver": driver_version(),
        "cuda": torch.version.cuda,
        "torch": torch.__version__,
        "python": platform.python_version(),
    }


def driver_version():
    """The NVIDIA driver's version, or None where nvidia-smi finds no driver."""
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.stdout.split("\n")[0].strip()


def kernels_seen():
    """How many kernels torch.profiler sees of one addition on the GPU (1 where it works)."""
    from torch.profiler import ProfilerActivity, profile

    one = torch.ones(1, device="cuda")
    with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as profiler:
        one.add_(1)
        torch.cuda.synchronize()
    return sum(event.device_type == torch.autograd.DeviceType.CUDA for event in profiler.events())


def report():
    """Yield for every check: whether it is fine, what was found, and otherwise the mend."""
    found, live = machine(), torch.cuda.is_available()
    lessons = len(list((TRACES / REFERENCE_GPU).glob("*.ipynb")))
    yield sys.version_info >= MINIMUM_PYTHON, f"Python {found['python']}", "install Python 3.11 or newer"
    version = tuple(int(part) for part in found["torch"].split(".")[:2])
    yield version >= MINIMUM_TORCH, f"torch {found['torch']}", "run `make lab`, which installs the tested version"
    build = f"torch built for {'CUDA ' + found['cuda'] if found['cuda'] else 'the CPU only'}"
    yield bool(found["cuda"]), build, "for live lessons, install a CUDA build of torch"
    driver = f"NVIDIA driver {found['driver'] or 'not found'}"
    yield bool(found["driver"]), driver, "for live lessons, install the driver, or pass the GPU into the container"
    yield (
        live,
        f"GPU {found['gpu'] or 'not seen by torch'}",
        "for live lessons, check the driver and CUDA_VISIBLE_DEVICES",
    )
    if live:
        memory = torch.cuda.get_device_properties(0).total_memory / 2**30
        yield memory > 7, f"GPU memory {memory:.0f} GiB", "lessons are made for 8 GB; watch each one's stated need"
        seen = kernels_seen()
        yield seen == 1, f"torch.profiler saw {seen} of 1 kernels", "close other profilers, and allow access to CUPTI"
    yield lessons > 0, f"{lessons} recorded lessons in traces/{REFERENCE_GPU}", "restore traces/ with git"
    mode = "live on this GPU" if live else "as recorded" if lessons else "not at all"
    yield live or lessons > 0, f"%%gpu cells run {mode}", "find a GPU, or restore traces/ with git"


def main():
    """Print the report; returns 1 if lessons can run neither live nor recorded, else 0."""
    for ok, what, mend in report():
        print(f"[OK]   {what}" if ok else f"[FAIL] {what}: {mend}")
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
