"""Record lessons on this machine's GPU:  python -m course.record [lesson ...]"""

import shutil
import sys
import tempfile
from pathlib import Path

import nbformat
import torch
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

from course.execute import CELL_SECONDS, gpu_slug, run
from course.files import SavingError, replacing
from course.needs import NeedsMore
from course.notebooks import TRACES, lesson_name, lessons
from course.recording import Recording, digest, trace_name


def record(path: Path, traces: Path = TRACES) -> Path:
    """Run a lesson on this machine's GPU and keep it as traces/<gpu>/<lesson>.ipynb; return that path.

    The lesson's profiler traces go into the folder beside it. The recording is replaced in one step, when the
    whole lesson has run: CellExecutionError comes through, and the earlier recording stays as it was.
    """
    name, folder = lesson_name(path), traces / gpu_slug()
    target = folder / f"{name}.ipynb"
    with tempfile.TemporaryDirectory() as staging:
        notebook = run(path, Path(staging))
        files = {file.name.removesuffix(".json.gz"): file.read_bytes() for file in sorted(Path(staging).iterdir())}
    named = {trace: trace_name(trace, content) for trace, content in files.items()}
    notebook.metadata["recording"] |= {"traces": named}
    notebook = nbformat.v4.reads(nbformat.v4.writes(notebook))  # as it will be read
    notebook.metadata["recording"]["digest"] = digest(notebook)
    for trace, content in files.items():  # under new names, so that the earlier recording keeps its own
        with replacing(folder / name / named[trace]) as file:
            file.write_bytes(content)
    with replacing(target) as file:
        file.write_text(nbformat.v4.writes(notebook) + "\n", encoding="utf-8", newline="\n")
    for file in (folder / name).glob("*"):
        if file.name not in named.values():
            file.unlink()
    return target


def attempt(path: Path) -> tuple[bool, str]:
    """Record one lesson; returns whether that went well, and what there is to say."""
    try:
        about = Recording.read(record(path)).about
    except CellExecutionError as error:
        if error.ename == NeedsMore.__name__:
            return True, f"not recorded on this machine. {error.evalue}"
        problem = f"{error.ename}: {error.evalue}"
    except DeadKernelError:
        problem = "Its kernel died: somebody killed it, or the machine ran out of memory."
    except CellTimeoutError:
        problem = f"A cell took longer than {CELL_SECONDS} s."
    except SavingError as error:
        problem = str(error)
    else:
        return True, f"recorded in {about['seconds']} s, peak GPU memory {about['peak_gpu_mib']} MiB"
    return False, f"failed, so its earlier recording stays.\n  {problem}"


def main(names: list[str]) -> int:
    """Record the named lessons, or all, also those after one that fails.

    Returns 1 if one failed, 2 if nothing could be tried, 130 if interrupted.
    """
    if not torch.cuda.is_available():
        print("Recording needs a CUDA GPU, and torch sees none here (`make doctor` says why).", file=sys.stderr)
        return 2
    chosen = [path for path in lessons() if not names or lesson_name(path) in names]
    unknown = set(names) - {lesson_name(path) for path in chosen}
    if unknown:
        print(f"No lesson is called {', '.join(sorted(unknown))}.", file=sys.stderr)
        return 2
    for leftover in (TRACES / gpu_slug()).rglob(".saving-*"):  # of a recorder that was killed
        shutil.rmtree(leftover, ignore_errors=True)
    all_done = True
    for path in chosen:
        try:
            done, sentence = attempt(path)
        except KeyboardInterrupt:
            print(f"{path.stem}: interrupted, so its earlier recording stays.", file=sys.stderr)
            return 130
        print(f"{path.stem}: {sentence}", file=sys.stdout if done else sys.stderr)
        all_done &= done
    return 0 if all_done else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
