"""Batches that reached no owner are reported only while recent."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from peercached.peer.directory import status as directory_status
from peercached.peer.directory.status import UNREACHED_S, DirectoryStatus


def test_old_unreached_sets_are_no_longer_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [1000.0]
    monkeypatch.setattr(directory_status, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    status = DirectoryStatus(*(cast(Any, None) for _ in range(5)))
    assert not status._unreached_lately(0)
    assert status._unreached_lately(1)
    clock[0] += UNREACHED_S - 1
    assert status._unreached_lately(1)
    clock[0] += 2
    assert not status._unreached_lately(1)
    assert status._unreached_lately(2), "another one"
