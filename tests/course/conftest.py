"""The lesson "speed" (tests/support/learner.py), recorded here on the CPU, and played."""

import shutil

import pytest

from course import lesson
from tests.support.learner import CELLS, Learner, recorded_here


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The lesson "speed", recorded by the recorder, here on the CPU: a folder with notebooks/ and
    traces/.
    """
    warned = "%%gpu\nimport warnings\n\nwarnings.warn('old')"
    return recorded_here(tmp_path_factory.mktemp("course"), "03_speed.ipynb", *CELLS, warned)


@pytest.fixture
def traces(made, tmp_path, monkeypatch):
    """A copy of the recordings, from which lessons play."""
    shutil.copytree(made / "traces", tmp_path / "traces")
    monkeypatch.setattr(lesson, "TRACES", tmp_path / "traces")
    return tmp_path / "traces"


@pytest.fixture
def path(traces):
    return traces / "nvidia-h200" / "speed.json"


@pytest.fixture
def learner(shell, traces, monkeypatch):
    monkeypatch.setattr(lesson, "gpu_name", lambda: None)
    monkeypatch.setattr(lesson, "_open", None)
    return Learner(shell)
