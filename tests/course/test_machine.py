"""What a lesson needs beyond one GPU, and what it does without."""

import pytest
import torch

from course import machine, ranks
from course.machine import missing, recording_notice
from tests.support.notebooks import write_notebook

ABOUT = {"gpu": "NVIDIA H200", "torch": "2.11.0", "date": "2026-11-21"}


SHARE_IT = "2 GPUs (this machine has 1; with CUDA_GRAPHS_SHARE_GPU=1 the ranks share it)"


@pytest.fixture
def two_gpus(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)


def test_further_gpus_are_counted(two_gpus):
    assert missing(gpus=2) == []
    (needed,) = missing(gpus=4)
    assert needed.startswith("4 GPUs (this machine has 2")


@pytest.mark.parametrize(
    ("there", "nccl", "share_gpu", "allowed", "needed"),
    [
        (1, 30, False, False, SHARE_IT),
        (1, 30, False, True, None),
        (1, 30, True, False, None),
        (1, 29, True, True, "2 GPUs (this machine has 1), or one with PyTorch 2.15"),
        (0, 30, True, True, "2 GPUs (this machine has none), or one with PyTorch 2.15"),
    ],
)
def test_ranks_share_a_gpu_where_nccl_can_and_they_may(
    monkeypatch, there, nccl, share_gpu, allowed, needed
):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: there)
    monkeypatch.setattr(torch.cuda.nccl, "version", lambda: (2, nccl, 0))
    monkeypatch.delenv(ranks.SHARE, raising=False)
    if allowed:
        monkeypatch.setenv(ranks.SHARE, "1")
    assert missing(2, [], share_gpu) == ([needed] if needed else [])
    assert machine.has_too_few_gpus(2) and not machine.has_too_few_gpus(1)


def test_packages_are_named_with_the_command_that_installs_them(monkeypatch):
    monkeypatch.setattr(machine, "is_installed", lambda package: package == "torch")
    assert missing(needs=["torch"]) == []
    assert missing(needs=["transformer_engine", "cuda.core", "megatron.core", "abc"]) == [
        "the package transformer_engine (`pip install -e .[te]`)",
        "the package cuda.core (`pip install -e .[core]`)",
        "the package megatron.core (`pip install -e .[megatron]`)",
        "the package abc (`pip install abc`)",
    ]


def test_an_older_version_or_a_part_of_a_package_can_be_missing():
    assert machine.is_installed("torch>=2.11") and machine.is_installed("torch.cuda")
    for missing_one in ("torch>=99.0", "torch.no_such_part", "no_such_package.core"):
        assert not machine.is_installed(missing_one)


def test_a_recording_says_where_it_ran_and_what_live_would_need():
    text = recording_notice(ABOUT, 1, [])
    assert "show what they gave on an NVIDIA H200 (torch 2.11.0, 2026-11-21)" in text
    text = recording_notice(ABOUT, 2, ["2 GPUs (this machine has 1)"])
    assert "on several GPUs of the type NVIDIA H200" in text
    assert "on 4 GPUs of the type NVIDIA H200" in recording_notice(ABOUT | {"gpus": 4}, 2, [])
    assert "on an NVIDIA H200 that 2 processes shared" in recording_notice(
        ABOUT | {"gpus": 1}, 2, []
    )
    assert text.endswith("To run live, this lesson needs 2 GPUs (this machine has 1).")


def test_lessons_that_need_more_are_named(tmp_path, monkeypatch):
    write_notebook(tmp_path / "01_plain.ipynb", 'lesson("plain")')
    write_notebook(tmp_path / "02_two.ipynb", 'lesson("two", gpus=2, recorded_on="a")')
    write_notebook(tmp_path / "03_package.ipynb", 'lesson("package", needs=["no_such_package"])')
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    assert list(machine.recorded_only_notices(tmp_path)) == [
        "02_two.ipynb plays its recording: live, it needs 2 GPUs (this machine has none)",
        "03_package.ipynb plays its recording: live, it needs the package no_such_package "
        "(`pip install no_such_package`)",
    ]


def test_the_cpu_is_the_one_that_linux_names(tmp_path, monkeypatch):
    file = tmp_path / "cpuinfo"
    monkeypatch.setattr(machine, "Path", lambda _: file)
    monkeypatch.setattr(machine.platform, "processor", lambda: "")
    assert machine.cpu_name() is None
    file.write_text("processor\t: 0\nmodel name\t: One CPU @ 2.00GHz\nmodel name\t: Another\n")
    assert machine.cpu_name() == "One CPU @ 2.00GHz"
