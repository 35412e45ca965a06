"""Listings of the project's code."""

import pytest

from course.show_source import body_of, numbered_steps


def test_a_body_is_shown_without_signature_and_docstring():
    shown = body_of("examples/triton_decoder.py", "_matvec_kernel").data
    assert shown.startswith("_let_next_kernel_start(PDL)\nrows = ")
    assert shown.endswith("(y, rows, weight_scale, residual, out, best_logits, best_tokens)")
    assert '"""' not in shown


def test_a_method_is_found_in_its_class():
    shown = body_of("examples/train_agent.py", "PPO.iteration").data
    assert shown == "self.rollout()\nreturn self.update()"
    with pytest.raises(LookupError, match=r"no function PPO\.step"):
        body_of("examples/train_agent.py", "PPO.step")


def test_numbered_lines_are_shown_in_order_without_their_reasons():
    shown = numbered_steps("examples/train_agent.py").data.splitlines()
    assert [line.rpartition("# ")[2] for line in shown] == [f"{number}." for number in range(1, 9)]
    assert shown[0].endswith("  self.state.add_(change, alpha=0.02)  # 1.")
    assert int(shown[0].split()[0]) < int(shown[1].split()[0])
