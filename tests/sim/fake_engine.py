"""The data plane as _native.pyi describes it, made of dicts: for the simulator and unit tests."""

from __future__ import annotations

import contextlib
import hashlib
import os
import struct
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from functools import cache
from itertools import count
from typing import Any

from peercached.directory.layout import HOLDERS_NAMED_MAX

ROW = struct.Struct("<16sQQIIHB5x")
RESIDENT, WITHDRAW = 1, 2
BUCKETS = 256


def digest_of(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


def build_ring(
    members: Mapping[str, int], pool_bytes: object = None, vnodes: int = 16
) -> tuple[bytes, bytes]:
    """All nodes alike, whatever their pools."""
    points = sorted((place, n) for n in members for place in _places(n, vnodes))
    positions = struct.pack(f"<{len(points)}Q", *(p for p, _ in points))
    return positions, struct.pack(f"<{len(points)}H", *(members[n] for _, n in points))


@cache
def _places(node_id: str, vnodes: int) -> list[int]:
    each = (hashlib.blake2b(f"{node_id}#{i}".encode(), digest_size=8) for i in range(vnodes))
    return [int.from_bytes(one.digest(), "big") for one in each]


def unpack_rows(rows: bytes) -> list[tuple[Any, ...]]:
    return list(ROW.iter_unpack(rows))


class RingTable:
    def __init__(self, positions: bytes, nodes: bytes, replicas: int) -> None:
        self._positions = struct.unpack(f"<{len(positions) // 8}Q", positions)
        self._nodes = struct.unpack(f"<{len(nodes) // 2}H", nodes)
        self._replicas = min(replicas, len(set(self._nodes)))
        self._found: dict[bytes, list[int]] = {}

    def owners(self, digest: bytes) -> list[int]:
        found = self._found.get(digest)
        if found is None:
            found = self._found[digest] = self._search(digest)
        return found

    def _search(self, digest: bytes) -> list[int]:
        at = bisect_left(self._positions, int.from_bytes(digest[8:], "little"))
        owners: list[int] = []
        while len(owners) < self._replicas:
            node = self._nodes[at % len(self._nodes)]
            if node not in owners:
                owners.append(node)
            at += 1
        return owners

    def split(self, items: bytes, stride: int, first_only: bool = False) -> list[tuple[int, bytes]]:
        parts: dict[int, list[bytes]] = {}
        for at in range(0, len(items), stride):
            item = items[at : at + stride]
            owners = self.owners(item[:16])
            for owner in owners[:1] if first_only else owners:
                parts.setdefault(owner, []).append(item)
        return [(owner, b"".join(part)) for owner, part in parts.items()]


def _term(digest: bytes, generation: int, flags: int) -> int:
    packed = struct.pack("<16sQB", digest, generation, flags & RESIDENT)
    return int.from_bytes(hashlib.blake2b(packed, digest_size=8).digest(), "little")


def _summary(records: Iterable[tuple[bytes, int, int]]) -> bytes:
    summary = bytearray(BUCKETS * 16)
    for digest, generation, flags in records:
        at = 16 * digest[0]
        hash_, found = struct.unpack_from("<QQ", summary, at)
        term = _term(digest, generation, flags)
        struct.pack_into("<QQ", summary, at, (hash_ + term) % 2**64, found + 1)
    return bytes(summary)


class FakeNative:
    """The module functions of peercached._native."""

    RingTable = RingTable

    @staticmethod
    def map_rows(rows: bytes, mapping: bytes) -> bytes:
        table = struct.unpack(f"<{len(mapping) // 2}H", mapping)
        out = []
        for d, offset, generation, check, length, holder, flags in ROW.iter_unpack(rows):
            if holder >= len(table):
                raise ValueError(f"rows: holder {holder} is outside the table of {len(table)}")
            if table[holder] != 0xFFFF:
                out.append(ROW.pack(d, offset, generation, check, length, table[holder], flags))
        return b"".join(out)

    @staticmethod
    def missing(digests: bytes, items: bytes, stride: int) -> bytes:
        found = {items[i : i + 16] for i in range(0, len(items), stride)}
        each = (digests[i : i + 16] for i in range(0, len(digests), 16))
        return b"".join(d for d in each if d not in found)

    @staticmethod
    def split_buckets(rows: bytes) -> list[tuple[int, bytes]]:
        parts: dict[int, list[bytes]] = {}
        for row in ROW.iter_unpack(rows):
            parts.setdefault(row[0][0], []).append(ROW.pack(*row))
        return [(bucket, b"".join(parts[bucket])) for bucket in sorted(parts)]


class FakeEngine:
    def __init__(self, shard_capacity: int = 1 << 30) -> None:
        self.pool: dict[bytes, tuple[int, int]] = {}  # digest -> generation, length
        self.disk: dict[bytes, int] = {}
        self.warmed: list[bytes] = []
        self.shard: dict[tuple[bytes, int], tuple[Any, ...]] = {}
        self.shard_capacity = shard_capacity
        self.nodes: dict[int, tuple[str, int]] = {}
        self.suspected: set[int] = set()
        self.connected: dict[int, tuple[str, int, bytes, int, int]] = {}
        self.readers: dict[tuple[str, int], bytes] = {}
        self.expelled: list[tuple[str, int]] = []
        self.published: set[bytes] = set()
        self.answers: dict[int, bytes] = {}
        self.epochs: dict[bytes, int] = {}
        self.shard_final = False
        self.data_port = 7
        self.rails = 0
        self.channels: dict[int, bytes | str] = {}  # connect id -> the answer, or why there is none
        self.event_fd = os.eventfd(0, os.EFD_NONBLOCK) if hasattr(os, "eventfd") else -1
        self.ring: RingTable | None = None
        self._events: list[tuple[int, int, float, bytes]] = []
        self._generation = 0
        self._next_ticket = 1

    def listen(self) -> None: ...
    def start(self) -> None: ...
    def stop(self) -> None:
        if self.event_fd >= 0:
            os.close(self.event_fd)
            self.event_fd = -1

    # --- what the native threads would do

    def generation(self) -> int:
        self._generation += 1
        return self._generation

    def set_page(self, digest: bytes, length: int = 64) -> bytes:
        """Commits a page; returns its record, to be published."""
        generation = self.generation()
        self.pool[digest] = (generation, length)
        return ROW.pack(digest, generation * 64, generation, 1, length, 0, RESIDENT)

    def drop_page(self, digest: bytes) -> bytes:
        """Evicts a page; returns its withdrawal."""
        if self.pool.pop(digest, None) is None:
            return b""
        self.published.discard(digest)
        return ROW.pack(digest, 0, self.generation(), 0, 1, 0, WITHDRAW)

    def post(self, kind: int, payload: bytes, left_s: float = 0.0) -> int:
        """Queues an event; the ticket is 0 if `left_s` is."""
        ticket = 0
        if left_s:
            ticket, self._next_ticket = self._next_ticket, self._next_ticket + 1
        self._events.append((kind, ticket, left_s, payload))
        if self.event_fd >= 0:
            os.eventfd_write(self.event_fd, 1)
        return ticket

    # --- events

    def take_events(self, limit: int = 256) -> list[tuple[int, int, float, bytes]]:
        taken, self._events = self._events[:limit], self._events[limit:]
        if self.event_fd >= 0 and not self._events:
            with contextlib.suppress(BlockingIOError):
                os.eventfd_read(self.event_fd)
        return taken

    def answer(self, ticket: int, payload: bytes) -> None:
        self.answers[ticket] = payload

    # --- nodes and ring

    def add_node(self, node_id: str, incarnation: int) -> int:
        # As the native table: the lowest that is free, also one that another node had.
        index = next(i for i in count(1) if i not in self.nodes)
        self.nodes[index] = (node_id, incarnation)
        return index

    def drop_node(self, index: int) -> None:
        del self.nodes[index]
        self.suspected.discard(index)
        self.shard = {key: row for key, row in self.shard.items() if key[1] != index}

    def connect_node(
        self, index: int, host: str, port: int, token: bytes, incarnation: int, rails: int
    ) -> None:
        self.connected[index] = (host, port, token, incarnation, rails)

    def transport(self) -> dict[str, Any]:
        return {
            "protocol": "tcp",
            "why": "a fake has no rails",
            "fallback_reads": 0,
            "fallback_peers": 0,
            "rails": [],
        }

    def channel_connected(self, connect_id: int, answer: bytes) -> None:
        assert connect_id not in self.channels
        self.channels[connect_id] = answer

    def channel_refused(self, connect_id: int, why: str) -> None:
        assert connect_id not in self.channels
        self.channels[connect_id] = why

    def accept_channel(self, node_id: str, incarnation: int, offer: bytes, closed: bytes) -> bytes:
        raise RuntimeError("this data plane is a fake and has no rails")

    def suspect_node(self, index: int, suspect: bool) -> None:
        (self.suspected.add if suspect else self.suspected.discard)(index)

    def take_used(self) -> list[tuple[int, bytes]]:
        return []

    def take_notices(self) -> list[str]:
        return []

    def set_quotas(self, rules: list[tuple[str, int, int | None]]) -> None:
        del rules

    def guard_workers(self, socket_group: int, users: list[int], groups: list[int]) -> None:
        del socket_group, users, groups

    def admit_reader(self, node_id: str, incarnation: int, token: bytes) -> None:
        self.readers[(node_id, incarnation)] = token

    def expel_reader(self, node_id: str, incarnation: int) -> None:
        self.readers.pop((node_id, incarnation), None)
        self.expelled.append((node_id, incarnation))

    def set_ring(self, positions: bytes, nodes: bytes, replicas: int) -> None:
        self.ring = RingTable(positions, nodes, replicas)

    def set_shard_final(self, final: bool) -> None:
        self.shard_final = final

    def _ring(self) -> RingTable:
        assert self.ring is not None
        return self.ring

    def split(self, items: bytes, stride: int, first_only: bool = False) -> list[tuple[int, bytes]]:
        return self._ring().split(items, stride, first_only)

    def owners(self, digest: bytes) -> list[int]:
        return self._ring().owners(digest)

    def ring_shares(self, owners: int = 1) -> list[tuple[int, float]]:
        return []

    # --- shard

    def shard_apply(self, holder: int, rows: bytes) -> tuple[int, int, int, int, int]:
        assert holder == 0 or holder in self.nodes
        added = changed = withdrawn = old = full = 0
        for row in ROW.iter_unpack(rows):
            key = (row[0], holder)
            stored = self.shard.get(key)
            if row[6] & WITHDRAW:
                if stored is not None and stored[2] <= row[2]:
                    del self.shard[key]
                    withdrawn += 1
                else:
                    old += 1
            elif stored is not None and stored[2] >= row[2]:
                old += 1
            elif stored is None and len(self.shard) >= self.shard_capacity:
                full += 1
            else:
                added += stored is None
                changed += stored is not None
                self.shard[key] = row
        return added, changed, withdrawn, old, full

    def shard_lookup(self, digests: bytes) -> bytes:
        wanted = {digests[at : at + 16] for at in range(0, len(digests), 16)}
        found: dict[bytes, list[bytes]] = {}
        for (digest, holder), row in self.shard.items():
            if digest in wanted:
                found.setdefault(digest, []).append(ROW.pack(*row[:5], holder, row[6]))
        return b"".join(row for rows in found.values() for row in rows[:HOLDERS_NAMED_MAX])

    def _owned(self, holder: int) -> list[bytes]:
        return [d for d, h in self.shard if h == holder and 0 in self.owners(d)]

    def shard_summary(self, holder: int) -> bytes:
        rows = [self.shard[(digest, holder)] for digest in self._owned(holder)]
        return _summary((row[0], row[2], row[6]) for row in rows)

    def shard_replace(
        self, holder: int, bucket: int, as_of: int, rows: bytes
    ) -> tuple[int, int, int, int, int]:
        keep = {row[0] for row in ROW.iter_unpack(rows)}
        for digest in self._owned(holder):
            if (
                digest[0] == bucket
                and digest not in keep
                and self.shard[(digest, holder)][2] <= as_of
            ):
                del self.shard[(digest, holder)]
        return self.shard_apply(holder, rows)

    def shard_trim(self) -> int:
        gone = [key for key in self.shard if 0 not in self.owners(key[0])]
        for key in gone:
            del self.shard[key]
        return len(gone)

    # --- pool

    def _row(self, digest: bytes) -> bytes:
        generation, length = self.pool[digest]
        return ROW.pack(digest, generation * 64, generation, 1, length, 0, RESIDENT)

    def pool_summaries(self) -> tuple[int, dict[int, bytes]]:
        by_owner: dict[int, list[tuple[bytes, int, int]]] = {}
        for digest, (generation, _) in self.pool.items():
            for owner in self.owners(digest):
                by_owner.setdefault(owner, []).append((digest, generation, RESIDENT))
        return self._generation, {owner: _summary(r) for owner, r in by_owner.items()}

    def pool_rows(self, owner: int, buckets: bytes) -> tuple[int, bytes]:
        chosen = [d for d in self.pool if buckets[d[0]] and owner in self.owners(d)]
        return self._generation, b"".join(self._row(d) for d in chosen)

    def mark_published(self, rows: bytes) -> None:
        self.published |= {row[0] for row in ROW.iter_unpack(rows)}

    def remove_local(self, digests: bytes) -> bytes:
        return b"".join(self.drop_page(digests[i : i + 16]) for i in range(0, len(digests), 16))

    drop_from_pool = remove_local

    def promote(self, digests: bytes, timeout_ms: int) -> bytes:
        """Of those on `disk` (digest -> length): resident records. Of others: withdrawals."""
        out = []
        for at in range(0, len(digests), 16):
            digest = digests[at : at + 16]
            if digest in self.disk and digest not in self.pool:
                self.set_page(digest, self.disk[digest])
            if digest in self.pool:
                out.append(self._row(digest))
            else:
                out.append(ROW.pack(digest, 0, self.generation(), 0, 1, 0, WITHDRAW))
        return b"".join(out)

    def warm(self, digests: bytes) -> None:
        self.warmed.append(digests)

    def local_rows(self, digests: bytes) -> bytes:
        each = [digests[i : i + 16] for i in range(0, len(digests), 16)]
        return b"".join(self._row(d) for d in each if d in self.pool)

    # --- namespaces

    def namespace_id(self, namespace: str) -> bytes:
        return digest_of(f"namespace {namespace}")

    def digest(self, namespace: str, key: bytes) -> bytes:
        epoch = self.epochs.get(self.namespace_id(namespace), 0)
        return digest_of(f"{namespace}/{epoch}/{key!r}")

    def namespace_epochs(self) -> dict[bytes, int]:
        return dict(self.epochs)

    def raise_epoch(self, namespace_id: bytes, epoch: int) -> bool:
        if epoch <= self.epochs.get(namespace_id, 0):
            return False
        self.epochs[namespace_id] = epoch
        return True

    def location_cached(self, digest: bytes) -> bool:
        return False

    def stats(self) -> dict[str, Any]:
        return {}

    def workers(self) -> list[Mapping[str, Any]]:
        return []
