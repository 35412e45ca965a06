"""What stops a recording or a measurement in the middle, and what the course says and
keeps then.
"""

import pytest
from jupyter_client.manager import start_new_kernel
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

from course.commands import record
from course.display import RUN_FIRST
from course.files import SavingError, replacing
from course.paths import ROOT
from tests.support.machine import PATIENCE


@pytest.mark.parametrize(
    ("done", "status"),
    [([True, False, True], 1), ([True, True], 0), ([True, KeyboardInterrupt], 130)],
)
def test_the_recorder_goes_on_and_says_how_it_ended(monkeypatch, tmp_path, done, status):
    tried = iter(done)

    def attempt(path):
        if (found := next(tried)) is KeyboardInterrupt:
            raise found
        return found, ""

    monkeypatch.setattr(record, "lessons", lambda: [ROOT / "00_a.ipynb"] * len(done))
    monkeypatch.setattr(record, "lesson_name", lambda path: path.stem)
    monkeypatch.setattr(record, "TRACES", tmp_path)
    (tmp_path / "nvidia-h200/.saving-killed").mkdir(parents=True)
    monkeypatch.setattr(record, "gpu_slug", lambda: "nvidia-h200")
    monkeypatch.setattr(record.torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(record, "try_to_record", attempt)
    assert record.main([]) == status and not list(tried)
    assert not list((tmp_path / "nvidia-h200").iterdir()), "what a killed recorder left goes"


@pytest.mark.parametrize(
    "error, done, sentence",
    [
        (DeadKernelError("..."), False, "or the machine ran out of memory."),
        (CellTimeoutError("..."), False, "A cell took longer than 600 s."),
        (SavingError("x could not be written (No space left on device)"), False, "on device)"),
        (CellExecutionError("", "NeedsMore", "It needs 2."), True, "this machine. It needs 2."),
    ],
)
def test_what_else_stops_a_recording_is_one_sentence(monkeypatch, error, done, sentence):
    def fail(path):
        raise error

    monkeypatch.setattr(record, "record", fail)
    found, said = record.try_to_record(ROOT / "00_a.ipynb")
    assert found == done and said.endswith(sentence)


@pytest.fixture(scope="module")
def kernel():
    """The kernel of `make lab`, where %%gpu is known before the first cell was run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JUPYTER_PATH", str(ROOT / "jupyter/data"))
        manager, client = start_new_kernel(startup_timeout=PATIENCE, cwd=ROOT)
    yield manager, client
    client.stop_channels()
    manager.shutdown_kernel(now=True)


def run(client, code):
    """Execute code and return what the cell shows as an error, or ""."""
    errors = []

    def keep_error(message):
        if message["msg_type"] == "error":
            errors.extend(message["content"]["traceback"])

    client.execute_interactive(code, timeout=PATIENCE, output_hook=keep_error)
    return "\n".join(errors)


MEASURE = """
from course.lesson import lesson
from helpers.timing import measure

lesson("start_here", live=True)


def step():
    step.count += 1
    if step.count == 100:
        print("under way", flush=True)


step.count = 0
"""


def test_an_interrupted_measurement_is_one_sentence_and_the_kernel_goes_on(kernel):
    manager, client = kernel
    assert run(client, "%%gpu x\nx = 1").startswith("LessonError: No lesson is open: run the cell")
    assert run(client, MEASURE) == ""
    errors = []

    def interrupt(message):
        if message["msg_type"] == "stream" and "under way" in message["content"]["text"]:
            manager.interrupt_kernel()
        if message["msg_type"] == "error":
            errors.append("\n".join(message["content"]["traceback"]))

    cell = "%%gpu rounds\nrounds = measure({'endless': step}, rounds=10**9)"
    client.execute_interactive(cell, timeout=PATIENCE, output_hook=interrupt)
    assert errors == ["Interrupted: what this cell makes is missing or old, so run it again."]
    assert run(client, "%%gpu rounds\nrounds = measure({'short': step}, rounds=3)") == ""
    assert run(client, "assert len(rounds) == 3") == ""
    assert run(client, "unbound") == f"NameError: name 'unbound' is not defined. {RUN_FIRST}"
    assert "ZeroDivisionError" in run(client, "1 / 0"), "other errors keep their traceback"


def test_on_a_full_disk_the_earlier_trace_stays(tmp_path):
    trace = tmp_path / "local" / "eager.json.gz"
    with replacing(trace) as file:
        file.write_bytes(b"earlier")
    with pytest.raises(SavingError) as caught, replacing(trace) as file:
        file.symlink_to("/dev/full")
        file.write_bytes(b"new")
    assert str(caught.value).startswith(f"{trace} could not be written (No space left on device; ")
    assert trace.read_bytes() == b"earlier" and list(trace.parent.iterdir()) == [trace]


def test_a_profiler_that_stops_short_in_silence_is_told(tmp_path):
    from helpers.profiling import SavingError, save_trace

    class Silent:
        def export_chrome_trace(self, path):
            """Write nothing, as the profiler does on a full disk."""

    with pytest.raises(SavingError, match="its writer stopped short"):
        save_trace(Silent(), tmp_path / "eager.json.gz")
    assert list(tmp_path.iterdir()) == []
