"""Decodes membership's keys in etcd and passes them to peercached/membership/etcd_view.py."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

from google.protobuf.message import DecodeError

from peercached.config.shared import difference
from peercached.membership import Member
from peercached.membership.etcd_view import EtcdView, Stamp
from peercached.peer.membership.embedded import wire as member_wire
from peercached.proto import etcd_pb2, peer_pb2

log = logging.getLogger(__name__)


class EtcdKeys:
    """`stamp` is the stamp's key (etcd_view.py), and the prefix of all nodes' keys. `own` is this
    node's key. `settings`: this node's (config/shared.py). Not thread safe."""

    def __init__(self, prefix: str, node_id: str, view: EtcdView, settings: Sequence[str]) -> None:
        self.stamp = f"{prefix.rstrip('/')}/nodes/".encode()
        self.own = self.stamp + node_id.encode()
        self.revision = 0  # etcd revision of the last change that we know
        self._view = view
        self._settings = settings
        self._unlike: dict[str, str] = {}  # how settings differ, by node id

    def reset(
        self, found: Iterable[etcd_pb2.KeyValue], revision: int, now: float
    ) -> etcd_pb2.KeyValue | None:
        """Replaces all keys by those found at that revision. Returns our own key, if any."""
        self.revision = revision
        keys = {kv.key: kv for kv in found}
        self._unlike.clear()
        stamp = keys.pop(self.stamp, None)
        members = [m for m in map(self._member_in, keys.values()) if m is not None]
        self._view.reset(members, Stamp.of(stamp.value) if stamp else Stamp(), now)
        return keys.get(self.own)

    def learn(self, event: etcd_pb2.Event, now: float) -> None:
        kv, gone = event.kv, event.type == etcd_pb2.Event.DELETE
        self.revision = kv.mod_revision
        if kv.key == self.stamp:
            self._view.stamped(Stamp() if gone else Stamp.of(kv.value), now)
            return
        member = None if gone else self._member_in(kv)
        if member is not None:
            self._view.put(member, now)
        else:
            node_id = kv.key.removeprefix(self.stamp).decode(errors="replace")
            self._unlike.pop(node_id, None)
            self._view.delete(node_id, now)

    @property
    def unlike(self) -> str:
        """How this node's settings differ from those of another node; empty if they do not."""
        return next(iter(self._unlike.values()), "")

    def value_of(self, own: Member) -> bytes:
        """The value of this node's key."""
        message = member_wire.member_message(own)
        message.settings.extend(self._settings)
        return bytes(message.SerializeToString())

    def _member_in(self, kv: etcd_pb2.KeyValue) -> Member | None:
        """The member in that key. None, and a log line, if this version cannot read it."""
        try:
            message = peer_pb2.Member.FromString(kv.value)
            member = member_wire.member_of(message)
            if self.stamp + member.node_id.encode() != kv.key:
                raise ValueError(f"it is of {member.node_id!r}")
            own_id = self.own.removeprefix(self.stamp).decode()
            differs = difference(own_id, self._settings, member.node_id, message.settings)
            self._unlike.pop(member.node_id, None)
            if differs and kv.key != self.own:  # that is of this node's earlier start
                self._unlike[member.node_id] = differs
            return member
        except (ValueError, DecodeError) as error:
            log.warning("ignoring the etcd key %r: %s", kv.key, error)
            return None
