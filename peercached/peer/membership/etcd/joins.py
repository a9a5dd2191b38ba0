"""Counts this node's joins in etcd: a flapping node must wait (peercached/membership/flapping.py).

The node counts its own joins in the key `PREFIX/joins/NODE_ID`. The age of the count must come from
etcd's clock. So the key's lease is renewed only when the key is written: the rest of the lease
tells the age. The lease ends when the joins have lost their weight. A wait is tied to the node's
membership lease: a node that loses this lease, or restarts, waits from the beginning.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time

from peercached.membership import Timing
from peercached.membership.flapping import Joins, waits_because
from peercached.peer.membership.etcd.client import EtcdClient
from peercached.proto import etcd_pb2

log = logging.getLogger(__name__)

# After so many half-lives a node counts as steady, except after extreme flapping.
KEPT_HALF_LIVES = 3


class WaitOver(Exception):
    """This node may join."""


class EtcdJoins:
    """Every call that asks etcd raises EtcdError if it fails."""

    def __init__(self, client: EtcdClient, prefix: str, node_id: str, timing: Timing) -> None:
        self._client = client
        self._timing = timing
        self._node_id = node_id
        self._key = f"{prefix.rstrip('/')}/joins/{node_id}".encode()
        self._joins: Joins | None = None
        self._lease = 0  # lease of our key
        self._waits_with = 0  # membership lease that the wait is tied to
        self._until = 0.0  # monotonic seconds

    @property
    def _left_s(self) -> float:
        return max(self._until - time.monotonic(), 0.0)

    @property
    def waits(self) -> str:
        """Why this node does not join yet; empty if it may."""
        return waits_because(self._node_id, self._left_s) if self._left_s else ""

    async def wait_s(self, membership: int) -> float:
        """Seconds that the node must still keep its membership lease before it may join."""
        if self._waits_with != membership:
            self._until = 0.0
            await self._read()
            now = time.monotonic()
            if self._joins is not None and self._joins.flapping(now, self._timing):
                self._joins = self._joins.held(now)
                put = await self._put(self._joins, now)
                await self._client.put(put.key, put.value, put.lease)
                self._until = now + self._joins.wait_s(self._timing)
            self._waits_with = membership
        return self._left_s

    async def wait_out(self) -> None:
        await asyncio.sleep(self._left_s)
        raise WaitOver

    async def one_more(self) -> etcd_pb2.PutRequest:
        """The write that counts one more join, for the same transaction as the membership key."""
        now = time.monotonic()
        joins = self._joins
        joined = Joins.first(now) if joins is None else joins.and_one(now, self._timing)
        return await self._put(joined, now)

    def joined(self) -> None:
        """This node is a member now: ends its wait, if there was one."""
        self._waits_with, self._until = 0, 0.0

    async def _put(self, joins: Joins, now: float) -> etcd_pb2.PutRequest:
        if not self._lease or not await self._client.keep_alive(self._lease):
            kept_s = KEPT_HALF_LIVES * self._timing.flap_half_life_s
            self._lease = await self._client.grant(int(kept_s))
        return etcd_pb2.PutRequest(key=self._key, value=value_of(joins, now), lease=self._lease)

    async def _read(self) -> None:
        found, _ = await self._client.read(self._key)
        own = next((kv for kv in found if kv.key == self._key), None)
        self._joins = None
        if own is None:
            return
        age_s = await self._client.renewed_s_ago(own.lease)
        if age_s is not None:
            self._lease = own.lease
            self._joins = joins_of(own.value, time.monotonic() - age_s)


def value_of(joins: Joins, now: float) -> bytes:
    """Weight, mean gap in seconds, seconds since the last join."""
    since_s = now - joins.last_at
    return f"{joins.weight:.3f} {joins.gap_s:.1f} {since_s:.1f}".encode()


def joins_of(value: bytes, put_at: float) -> Joins | None:
    found = re.fullmatch(rb" ".join([rb"(\d{1,9}\.\d{1,3})"] * 3), value)
    if found is None:
        log.warning("ignoring this node's malformed join history in etcd: %r", value)
        return None
    weight, gap_s, since_s = (float(found[i]) for i in (1, 2, 3))
    return Joins(weight, gap_s, put_at - since_s, put_at)
