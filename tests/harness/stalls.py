"""What fails while the whole machine stands still is run again, and the summary tells it.

A virtual machine is stopped for a second or ten where its host is full. Then every deadline of
every call under way is over at once, and nothing is known about the code under test. How long it
was is measured beside each test (harness.clock.MACHINE). Wrong bytes are wrong on any machine.
"""

import pytest

from harness.clock import MACHINE, seconds

# What a call's usual deadline must be able to bear is less.
_STOOD_STILL_S = 1.0
_TRIES_AGAIN = 2


def _machine_stood_still(error: BaseException) -> bool:
    return "wrong bytes" not in str(error) and MACHINE.stood_still_s() > seconds(_STOOD_STILL_S)


def run_again(items: list[pytest.Item]) -> None:
    """Marks them for pytest-rerunfailures."""
    for item in items:
        item.add_marker(pytest.mark.flaky(reruns=_TRIES_AGAIN, condition=_machine_stood_still))


def watch() -> None:
    """A test begins."""
    MACHINE.late_s()
    MACHINE.forget_longest()
