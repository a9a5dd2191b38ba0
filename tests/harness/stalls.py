"""Repeats tests that fail while the whole machine stands still, and the summary reports it.

A full host may stop a virtual machine for one to ten seconds. All deadlines then expire at once,
which says nothing about the code under test. harness.clock.MACHINE measures such stops during each
test. Wrong bytes are wrong on any machine, so they are never repeated.
"""

import pytest

from harness.clock import MACHINE, seconds

# A call's usual deadline must tolerate shorter stops.
_STOOD_STILL_S = 1.0
_TRIES_AGAIN = 2


def _machine_stood_still(error: BaseException) -> bool:
    return "wrong bytes" not in str(error) and MACHINE.stood_still_s() > seconds(_STOOD_STILL_S)


def run_again(items: list[pytest.Item]) -> None:
    """Marks the tests for pytest-rerunfailures."""
    for item in items:
        item.add_marker(pytest.mark.flaky(reruns=_TRIES_AGAIN, condition=_machine_stood_still))


def watch() -> None:
    """Starts the measurement for a test."""
    MACHINE.late_s()
    MACHINE.forget_longest()
