"""Writes this node's key in etcd, once this node may join and no other process has its node id."""

from __future__ import annotations

import contextlib
import logging
import time

from peercached.membership import Member, NodeAddress, Timing, Verdict
from peercached.membership.claims import EtcdClaim, taken
from peercached.membership.etcd_view import EtcdView
from peercached.peer.membership.etcd.client import EtcdClient, EtcdError
from peercached.peer.membership.etcd.joins import EtcdJoins
from peercached.peer.membership.etcd.keys import EtcdKeys
from peercached.proto import etcd_pb2

log = logging.getLogger(__name__)


class Taken(Exception):
    """Another process has our node id in etcd, or the members have other settings."""

    def __init__(self, reason: str, for_good: bool) -> None:
        super().__init__(reason)
        self.for_good = for_good


class EtcdOwnKey:
    def __init__(
        self,
        client: EtcdClient,
        keys: EtcdKeys,
        state: EtcdView,
        joins: EtcdJoins,
        address: NodeAddress,
        timing: Timing,
    ) -> None:
        self._client = client
        self._keys = keys
        self._state = state
        self._joins = joins
        self._address = address
        self._claim = EtcdClaim(address, timing)
        self._is_out = True  # the other nodes' view does not have this process
        self._is_put = False  # we have written the key in this session

    async def put(self, own: Member, key: etcd_pb2.KeyValue | None, lease: int) -> bool:
        """Writes the key. Call it once in a session, after all keys were read. `key`: our key as it
        was read; if it is already right, it is left alone. Returns False if this node flaps and
        has to wait (joins.py). Raises Taken or EtcdError."""
        self._is_put = False
        self._is_not_taken()
        if self.is_there:
            self._is_out = False
        elif self._state.is_without_us:
            self._is_out = True
        if self._is_out and self._keys.unlike:
            raise Taken(self._keys.unlike, for_good=True)
        if self._is_out and await self._joins.wait_s(lease) > 0:
            log.warning("%s", self._joins.waits)
            if key is not None:  # an older start of this node wrote it
                with contextlib.suppress(EtcdError):
                    await self._client.revoke(key.lease)
            return False
        found = self._state.member(own.node_id)
        if key is None or key.lease != lease or found != own:
            unchanged_since = 0 if key is None else key.mod_revision
            also = [await self._joins.one_more()] if self._is_out else []
            if not await self._client.put_if(
                self._keys.own, self._keys.value_of(own), lease, unchanged_since, also=also
            ):
                raise EtcdError("another process registers this node id at this moment")
        self._joins.joined()
        self._is_out, self._is_put = False, True
        return True

    @property
    def is_lost(self) -> bool:
        return self._is_put and not self.is_there

    @property
    def is_there(self) -> bool:
        found = self._state.member(self._address.node_id)
        return found is not None and found.address.same_process(self._address)

    def _is_not_taken(self) -> None:
        other = self._state.member(self._address.node_id)
        verdict = self._claim.judge(other, time.monotonic())
        if other is not None and verdict is not Verdict.ACCEPTED:
            raise Taken(taken(self._address, other.address), verdict is Verdict.DUPLICATE)
