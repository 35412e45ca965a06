"""Scripts whose lesson changes each numbered line and records what happens on a GPU."""

import pytest

from tests.support.scripts import dict_in_lesson, numbered_lines

LESSONS = {  # script: its lesson, what the lesson calls the changes, and lines changed elsewhere
    "train_mlp": ("capture_own_script", "changes", {"11"}),  # test_train_mlp.py
    "train_agent": ("train_agent", "changes", set()),
    "sample_diffusion_model": ("sample_diffusion_model", "changes", set()),
    "train_ddp": ("train_on_several_gpus", "left_out", set()),
    "split_decoder": ("split_decoder", "changed", set()),
}


@pytest.mark.parametrize("script", LESSONS)
def test_its_lesson_changes_every_numbered_line(script):
    lesson, name, elsewhere = LESSONS[script]
    changed = {change.split()[0] for change in dict_in_lesson(lesson, name)}
    assert set(numbered_lines(script)) <= changed | elsewhere
