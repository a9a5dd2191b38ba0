"""The watches of the meta port's server go on after an unexpected error."""

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

from peercached.news import News
from peercached.peer.rpc import connection_limits
from peercached.peer.rpc.auth import Secret
from peercached.peer.rpc.connection_limits import ConnectionLimits
from peercached.peer.server import server
from peercached.peer.server.server import PeerServer


async def test_connections_are_looked_at_again_when_files_may_be_opened_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limits = ConnectionLimits(None)
    monkeypatch.setattr(connection_limits, "LOOK_S", 0.001)
    monkeypatch.setattr(server, "WATCH_AGAIN_S", 0.001)
    no_file = OSError(errno.EMFILE, os.strerror(errno.EMFILE))
    scandir = Mock(side_effect=chain([no_file], repeat([])))
    monkeypatch.setattr(connection_limits, "os", SimpleNamespace(scandir=scandir))
    nobody = cast(Any, None)
    served = PeerServer(nobody, nobody, limits, Secret(b""), None, News())
    monkeypatch.setattr(served, "_listen", AsyncMock(return_value=1))
    await served.start("127.0.0.1", 1)
    await asyncio.to_thread(eventually, lambda: scandir.call_count > 2)
    await served.stop()
