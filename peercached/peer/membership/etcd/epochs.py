"""Namespace epochs in etcd, for nodes that missed a clear().

Each namespace that was ever cleared has one key, `PREFIX/epochs/NAMESPACE_ID`. No node deletes it.
If etcd loses keys, the nodes write them again.
"""

from __future__ import annotations

import asyncio
import logging
import random

from peercached.directory.epochs import Epochs
from peercached.membership import Timing
from peercached.peer.membership.etcd.client import EtcdClient
from peercached.proto import etcd_pb2

log = logging.getLogger(__name__)


class EtcdEpochs:
    """follow() and tell() run until etcd fails, then raise EtcdError. They can be run again."""

    def __init__(self, client: EtcdClient, prefix: str, timing: Timing, epochs: Epochs) -> None:
        self._client = client
        self._prefix = f"{prefix.rstrip('/')}/epochs/".encode()
        self._interval_s = timing.heartbeat_interval_s
        self._epochs = epochs
        self._known: dict[bytes, int] = {}  # by key: the epochs in etcd, as far as we know

    async def follow(self) -> None:
        keys, revision = await self._client.read(self._prefix)
        self._known.clear()  # etcd may have lost its data since the last session
        for kv in keys:
            self._learn(kv)
        async with self._client.watch(self._prefix, revision + 1) as raised:
            async for answer in raised:
                for event in answer.events:
                    if event.type == etcd_pb2.Event.PUT:
                        self._learn(event.kv)
                    else:
                        self._known.pop(event.kv.key, None)

    def _learn(self, kv: etcd_pb2.KeyValue) -> None:
        try:
            namespace_id = bytes.fromhex(kv.key.removeprefix(self._prefix).decode())
            epoch = int(kv.value)
            self._epochs.learn([(namespace_id, epoch)], asked=True)
            self._known[kv.key] = epoch
        except ValueError as error:
            log.warning("ignoring the etcd key %r: %s", kv.key, error)

    async def put(self) -> None:
        """Writes epochs that are higher here than in etcd. All members hear of a clear at once, so
        each waits a random time: usually another one has written it by then."""
        while True:
            await asyncio.sleep(self._interval_s * random.uniform(0.5, 2.0))
            for namespace_id, epoch in self._epochs.some():
                key = self._prefix + namespace_id.hex().encode()
                if self._known.get(key, 0) < epoch:
                    await self._client.put(key, str(epoch).encode())
                    self._known[key] = epoch
