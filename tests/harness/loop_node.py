"""Whole daemons in one process over 127.0.0.1, with the fake data plane."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

from harness.clock import now_s, seconds
from harness.fake_engine import FakeEngine, build_ring, digest_of
from harness.paced import paced
from harness.settings import fixed
from peercache_bench import process
from peercached import start_stop
from peercached.config import Config
from peercached.daemon import Daemon
from peercached.directory.layout import ROW_BYTES, holder_of
from peercached.peer.membership.this_node import new_incarnation
from peercached.peer.rpc.auth import Secret
from peercached.peer.rpc.heads import Heads
from peercached.peer.rpc.tls import Tls

# (page, node id). Defined here because inside LoopNode the name `set` is its method.
Found = set[tuple[str, str]]


def free_port() -> int:
    return process.free_port("127.0.0.1")


async def eventually(condition: Callable[[], Any], timeout_s: float = 10.0) -> None:
    deadline = now_s() + seconds(timeout_s)
    while not condition():
        assert now_s() < deadline, "the condition did not come true in time"
        await asyncio.sleep(0.005)


class LoopNode:
    """One daemon. `heads` are nodes or ports, in order. Without them, the node itself is the head.
    Times are short, in seconds of the reference machine (harness.clock)."""

    def __init__(
        self,
        node_id: str,
        port: int = 0,
        heads: Sequence[LoopNode | int] | None = None,
        secret: bytes = b"",
        incarnation: int = 0,
        transports: dict[str, bytes] | None = None,
        member_ttl_s: float = 1.2,
        tls: Tls | None = None,
        name: str = "",
        **settings: Any,
    ) -> None:
        self.port = port or free_port()
        ports = [
            head.port if isinstance(head, LoopNode) else head
            for head in ([self] if heads is None else heads)
        ]
        self.config = Config(
            node_id=node_id,
            host="127.0.0.1",
            meta_port=self.port,
            data_port=7,
            discovery_addr=[f"127.0.0.1:{port}" for port in ports],
            heartbeat_interval_s=seconds(0.3),
            member_ttl_s=seconds(member_ttl_s),
            socket_path="/none",
            admin_socket="/none.admin",
            **paced({"rpc_timeout_ms": 1000, "publish_timeout_ms": 1000, **settings}),
        )
        self.engine = FakeEngine()
        self.engine.own_transports = transports or {}
        self.daemon = Daemon(
            fixed(self.config),
            cast(Any, self.engine),
            Secret(secret),
            tls,
            incarnation or new_incarnation(),
            Heads(self.config.discovery_addr, self.config.host, self.port),
            build_ring,
            name=name,
        )
        self.engine.runs_as(self.daemon.placement.own.address.incarnation)

    async def __aenter__(self) -> LoopNode:
        try:
            await start_stop.start(self.daemon)
        except BaseException:
            await start_stop.stop(self.daemon)
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await start_stop.stop(self.daemon)

    async def ask(self, name: str, *fields: Any, left_s: float = 2.0) -> Any:
        ticket = self.engine.post(name, *fields, left_s=seconds(left_s))
        await eventually(lambda: ticket in self.engine.answers)
        answer = self.engine.answers.pop(ticket)
        assert answer is not None, "given up"
        return answer

    async def set(self, *names: str) -> None:
        for name in names:
            self.engine.set_page(digest_of(name))

    async def find(self, *names: str) -> Found:
        """The (page, holder's node id) of each record found."""
        by_digest = {digest_of(name): name for name in names}
        digests = b"".join(by_digest)
        rows = self.engine.local_rows(digests) + await self.daemon.records.find(digests, 2.0)
        nodes = self.daemon.placement.nodes
        return {
            (by_digest[row[:16]], nodes[holder_of(row)].address.node_id)
            for row in (rows[i : i + ROW_BYTES] for i in range(0, len(rows), ROW_BYTES))
        }

    @property
    def members(self) -> list[str]:
        return [m.node_id for m in self.daemon.placement.view.members]

    @property
    def trusts_all(self) -> bool:
        return not self.daemon.failures.suspects.reasons()

    def sentences(self) -> str:
        return "\n".join(h["sentence"] for h in self.daemon.status.document()["health"])

    @property
    def remedies(self) -> dict[str, str]:
        """By the code of the finding."""
        return {h["code"]: h["remedy"] for h in self.daemon.status.document()["health"]}


async def in_sync(*nodes: LoopNode) -> None:
    """Waits until all nodes are in each other's views and suspect nobody. On a busy machine a call
    may time out and cause a suspicion."""
    names = sorted(node.config.node_id for node in nodes)
    await eventually(lambda: all(n.members == names and n.trusts_all for n in nodes))


@asynccontextmanager
async def two_nodes(**options: Any) -> AsyncIterator[tuple[LoopNode, LoopNode]]:
    """Node a, which is the head, and node b, in sync. Both have these options."""
    async with LoopNode("a", **options) as a, LoopNode("b", heads=[a], **options) as b:
        await in_sync(a, b)
        yield a, b
