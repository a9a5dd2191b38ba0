"""Memberships in etcd without their daemons: their views, and waits for them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

from harness.clock import now_s, seconds
from peercached.membership import NodeAddress, Timing, View
from peercached.news import Event, News
from peercached.peer.membership.cluster import ViewFound
from peercached.peer.membership.etcd.client import EtcdClient
from peercached.peer.membership.etcd.membership import EtcdMembership
from peercached.peer.rpc.client import Peers


class ViewNews(News):
    """Notes the views alone."""

    def __init__(self, views: list[View]) -> None:
        super().__init__()
        self._views = views

    def post(self, event: Event) -> None:
        if isinstance(event, ViewFound):
            self._views.append(event.view)


class _NothingCleared:
    def some(self) -> list[tuple[bytes, int]]:
        return []


def membership(
    node_id: str, incarnation: int, port: int, endpoint: str, timing: Timing, views: list[View]
) -> EtcdMembership:
    """Adds its views to `views`."""
    return EtcdMembership(
        NodeAddress(node_id, incarnation, "127.0.0.1", port, 1),
        EtcdClient([endpoint], None, timing.etcd_deadline_s),
        "/peercached",
        timing,
        cast(Peers, None),
        cast(Any, _NothingCleared()),
        ViewNews(views),
    )


async def until(condition: Callable[[], Any], what: str, timeout_s: float = 20.0) -> None:
    until = now_s() + seconds(timeout_s)
    while not condition():
        assert now_s() < until, what
        await asyncio.sleep(0.01)


def in_thread(call: Any) -> Any:
    return asyncio.get_running_loop().run_in_executor(None, call)
