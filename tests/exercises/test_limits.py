"""An answer that never ends, or grows without end, is stopped with a sentence."""

import itertools
import resource
import signal

import pytest

from exercises.answers.limits import Stopped, limited

SOON = 0.2


def endless():
    while True:
        pass


def stubborn():
    while True:
        try:
            endless()
        except Exception:
            continue


@pytest.mark.parametrize("answer", [endless, stubborn])
def test_an_answer_that_never_ends_is_stopped(answer):
    said = r"ran for more than 0.2 seconds. Does a loop never end\?"
    with pytest.raises(Stopped, match=said), limited(seconds=SOON):
        answer()


@pytest.mark.parametrize(
    "grow", [lambda: list(itertools.count()), lambda: bytearray(2**33)], ids=["list", "bytes"]
)
def test_an_answer_that_grows_without_end_is_stopped(grow):
    with pytest.raises(Stopped, match="it took more than 0.25 GiB of memory"), limited(mib=256):
        grow()


@pytest.mark.parametrize("error", [None, ValueError])
def test_limits_end_with_the_block(error):
    def state():
        return signal.getsignal(signal.SIGALRM), resource.getrlimit(resource.RLIMIT_DATA)

    before = state()
    try:
        with limited():
            assert state() != before
            if error:
                raise error
    except ValueError:
        assert error
    assert state() == before and signal.getitimer(signal.ITIMER_REAL) == (0, 0)
