"""The watches of a gRPC port go on after an unexpected error."""

from __future__ import annotations

import asyncio
import errno
import os
from itertools import chain, repeat
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import AsyncMock, Mock

import pytest
from harness.waiting import eventually

from peercached.peer.rpc import connection_limits, listener
from peercached.peer.rpc.connection_limits import ConnectionLimits
from peercached.peer.rpc.listener import Listener
from peercached.peer.server.server import DOOR


async def test_connections_are_looked_at_again_when_files_may_be_opened_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limits = ConnectionLimits(None)
    monkeypatch.setattr(connection_limits, "LOOK_S", 0.001)
    monkeypatch.setattr(listener, "WATCH_AGAIN_S", 0.001)
    no_file = OSError(errno.EMFILE, os.strerror(errno.EMFILE))
    scandir = Mock(side_effect=chain([no_file], repeat([])))
    monkeypatch.setattr(connection_limits, "os", SimpleNamespace(scandir=scandir))
    served = Listener(DOOR, cast(Any, None), limits, None)
    monkeypatch.setattr(served, "_listen", AsyncMock(return_value=1))
    await served.start("127.0.0.1", 1)
    await asyncio.to_thread(eventually, lambda: scandir.call_count > 2)
    await served.stop()
