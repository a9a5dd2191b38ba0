"""A fake data plane with the interface of _native.pyi, for the simulator and tests. The pool is a
dict."""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Mapping
from typing import Any

from harness.fake_rows import RESIDENT, ROW, WITHDRAW, digest_of, unpack_rows
from harness.native_directory import NativeDirectory
from harness.shared_rings import build_ring
from peercached import _native
from peercached.admin.status import Status
from peercached.directory.layout import DIGEST_BYTES, REMOVED_BYTES

__all__ = [
    "RESIDENT",
    "ROW",
    "WITHDRAW",
    "FakeEngine",
    "build_ring",
    "digest_of",
    "unpack_rows",
]


# A sign of life: incarnation, view number, sequence, epochs mark, is a master, seconds since the
# sign, and seconds since an answer.
Heard = tuple[int, int, int, int, bool, float, float]

# Of the status document, as native/engine/observe/operator_view.cc gives them.
NATIVE_SECTIONS = (
    "pool",
    "quotas",
    "recovery",
    "removals",
    "shard",
    "copies",
    "locations",
    "ipc",
    "tcp_server",
    "handover",
    "holds",
    "pins",
    "demand",
    "operations",
)


def each(packed: bytes, stride: int = DIGEST_BYTES) -> list[bytes]:
    return [packed[at : at + stride] for at in range(0, len(packed), stride)]


class FakeEngine(NativeDirectory):
    def __init__(self) -> None:
        super().__init__()
        self.pool: dict[bytes, tuple[int, int]] = {}  # digest -> (generation, length)
        self.leaving: set[bytes] = set()  # withdrawn pages that the pool still has
        self.disk: dict[bytes, int] = {}
        self.hidden: dict[bytes, int] = {}  # digest -> length of pages that are held back
        self.journal: list[bytes] = []
        self.state_is_old = False
        self.journal_floor = 0
        self.removing: Counter[bytes] = Counter()
        self.open = self.paused = self.taking = False
        self.warmed: list[bytes] = []
        self.suspected: set[int] = set()
        self.owing: set[int] = set()
        self.connected: dict[int, tuple[str, int, bytes, int, dict[str, bytes]]] = {}
        self.readers: dict[tuple[str, int], bytes] = {}
        self.expelled: list[tuple[str, int]] = []
        self.answers: dict[int, Any] = {}  # None: the daemon gave up
        self.epochs: dict[bytes, int] = {}
        self.data_port = 7
        self.own_transports: dict[str, bytes] = {}
        self.channels: dict[int, bytes | str] = {}  # connect id -> answer, or refusal reason
        self.event_fd = os.eventfd(0, os.EFD_NONBLOCK) if hasattr(os, "eventfd") else -1
        self._events: list[tuple[Any, ...]] = []
        self._generation = 0
        self._next_ticket = 1

    def listen(self) -> None: ...
    def start(self) -> None: ...
    def stop(self) -> None:
        if self.event_fd >= 0:
            os.close(self.event_fd)
            self.event_fd = -1

    # --- the work of the native threads

    def generation(self) -> int:
        self._generation += 1
        return self._generation

    def tell(self, rows: bytes) -> None:
        """Followers hear of these changes."""

    def set_page(self, digest: bytes, length: int = 64) -> bytes:
        """Commits a page and returns its record."""
        generation = self.generation()
        self.pool[digest] = (generation, length)
        self.leaving.discard(digest)
        row = ROW.pack(digest, generation * 64, generation, 1, length, 0, RESIDENT)
        self.tell(row)
        return row

    def drop_page(self, digest: bytes) -> bytes:
        """Evicts a page and returns its withdrawal."""
        if self.pool.pop(digest, None) is None:
            return b""
        self.leaving.discard(digest)
        return self._withdraw(digest)

    def _withdraw(self, digest: bytes) -> bytes:
        row = ROW.pack(digest, 0, self.generation(), 0, 1, 0, WITHDRAW)
        self.tell(row)
        return row

    def post(self, name: str, *fields: Any, left_s: float = 0.0) -> int:
        """Queues an event. Returns its ticket, or 0 if `left_s` is 0."""
        ticket = 0
        if left_s:
            ticket, self._next_ticket = self._next_ticket, self._next_ticket + 1
        self._events.append((name, ticket, left_s, *fields))
        if self.event_fd >= 0:
            os.eventfd_write(self.event_fd, 1)
        return ticket

    # --- events

    def take_events(self, limit: int) -> list[tuple[Any, ...]]:
        taken, self._events = self._events[:limit], self._events[limit:]
        if self.event_fd >= 0 and not self._events:
            with contextlib.suppress(BlockingIOError):
                os.eventfd_read(self.event_fd)
        return taken

    def answer(self, ticket: int, payload: bytes) -> None:
        self.answers[ticket] = payload

    def answer_removal(self, ticket: int, *outcome: Any) -> None:
        self.answers[ticket] = outcome

    def give_up(self, ticket: int) -> None:
        self.answers[ticket] = None

    # --- nodes

    def drop_node(self, index: int) -> None:
        super().drop_node(index)
        self.suspected.discard(index)
        self.owing.discard(index)

    def connect_node(
        self,
        index: int,
        host: str,
        port: int,
        token: bytes,
        incarnation: int,
        offers: dict[str, bytes],
        *_: bool,
    ) -> None:
        self.connected[index] = (host, port, token, incarnation, offers)

    def disconnect_node(self, index: int) -> None:
        self.connected.pop(index, None)

    def transport(self) -> dict[str, Any]:
        return {
            "protocol": "tcp",
            "why": "a fake has no rails",
            "fallback_reads": 0,
            "fallback_peers": 0,
            "rails": [],
        }

    # Positional-only, so that a test may replace it by a function with other parameter names.
    def channel_connected(self, connect_id: int, answer: bytes, /) -> None:
        assert connect_id not in self.channels
        self.channels[connect_id] = answer

    def channel_refused(self, connect_id: int, why: str) -> None:
        assert connect_id not in self.channels
        self.channels[connect_id] = why

    def accept_channel(
        self, node_id: str, incarnation: int, offer: bytes, closed: bytes, /
    ) -> bytes:
        raise RuntimeError("this data plane is a fake and has no rails")

    def set_taking(self, taking: bool) -> None:
        self.taking = taking

    def suspect_node(self, index: int, suspect: bool) -> None:
        (self.suspected.add if suspect else self.suspected.discard)(index)

    def prove_paths(self, indices: list[int], timeout_s: float) -> list[bool]:
        del timeout_s
        return [True for _ in indices]

    def set_owes(self, index: int, owes: bool) -> None:
        (self.owing.add if owes else self.owing.discard)(index)

    def take_used(self) -> list[tuple[int, bytes]]:
        return []

    def set_replicas_max(self, bytes: int) -> None:
        del bytes

    def hot_holders(self) -> list[int]:
        return []

    def note_sets(self, on: bool) -> None:
        del on

    def has_fresh(self) -> bool:
        return False

    def filling(self) -> tuple[int, int, int]:
        return 0, 1 << 60, 0

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

    # --- pool

    def _row(self, digest: bytes) -> bytes:
        generation, length = self.pool[digest]
        return ROW.pack(digest, generation * 64, generation, 1, length, 0, RESIDENT)

    def drop_from_pool(self, digests: bytes) -> bytes:
        return b"".join(self.drop_page(digests[i : i + 16]) for i in range(0, len(digests), 16))

    def _still_here(self, records: bytes) -> list[bytes]:
        rows = ROW.iter_unpack(records)
        return [row[0] for row in rows if self.pool.get(row[0], (0, 0))[0] == row[2]]

    def begin_offer(self, records: bytes) -> None:
        del records

    def end_offer(self, records: bytes) -> None:
        del records

    def give_away(self, records: bytes, unless_pinned: bool) -> int:
        del unless_pinned
        leaving = [digest for digest in self._still_here(records) if digest not in self.leaving]
        for digest in leaving:
            self._withdraw(digest)
        self.leaving.update(leaving)
        return len(leaving)

    def drop_moved(self, records: bytes) -> None:
        here = self._still_here(records)
        self.drop_from_pool(b"".join(digest for digest in here if digest in self.leaving))

    # --- removals

    def remove_local(self, removed: bytes) -> tuple[bytes, bool]:
        rows = each(removed, REMOVED_BYTES)
        self.journal += rows
        for row in rows:
            self.hidden.pop(row[:DIGEST_BYTES], None)
        return self.drop_from_pool(b"".join(row[:DIGEST_BYTES] for row in rows)), True

    def begin_removal(self, digests: bytes, removal: int) -> tuple[bytes, bool]:
        self.removing.update(each(digests))
        mark = removal.to_bytes(8, "little")
        return self.remove_local(b"".join(digest + mark for digest in each(digests)))

    def unknown_removals(self, removed: bytes) -> bytes:
        known = set(self.journal[self.journal_floor :])
        return b"".join(row for row in each(removed, REMOVED_BYTES) if row not in known)

    def end_removal(self, digests: bytes) -> None:
        self.removing.subtract(each(digests))
        self.removing += Counter()

    def drop_all(self) -> bool:
        self.drop_from_pool(b"".join(list(self.pool)))
        self.hidden.clear()
        self.journal_floor = len(self.journal)
        return True

    def hide_older(self) -> None:
        self.hidden = {digest: length for digest, (_, length) in self.pool.items()}
        self.drop_from_pool(b"".join(list(self.pool)))

    def show_older(self) -> None:
        for digest, length in self.hidden.items():
            if digest not in self.pool:
                self.set_page(digest, length)
        self.hidden.clear()

    def begin_serving(self) -> None:
        self.open = True

    def end_serving(self) -> None:
        self.open = False

    def set_paused(self, paused: bool) -> None:
        self.paused = paused

    @property
    def serving(self) -> bool:
        return self.open and not self.paused

    @property
    def removals_last(self) -> int:
        return len(self.journal)

    def removals_since(self, position: int) -> bytes | None:
        assert position >= 0  # the real engine takes no negative positions
        return None if position < self.journal_floor else b"".join(self.journal[position:])

    def promote(self, digests: bytes, timeout_ms: int) -> bytes:
        """Returns resident records for digests in `disk` (digest -> length), and withdrawals for
        all others."""
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
        return b"".join(self._row(d) for d in each(digests) if d in self.pool)

    def pinned_by_namespace(self) -> list[tuple[bytes, int, int]]:
        return []

    # --- namespaces

    def namespace_id(self, namespace: str) -> bytes:
        return digest_of(f"namespace {namespace}")

    def digest(self, namespace: str, key: bytes) -> bytes:
        epoch = self.epochs.get(self.namespace_id(namespace), 0)
        return digest_of(f"{namespace}/{epoch}/{key!r}")

    def namespace_epoch(self, namespace_id: bytes) -> int:
        return self.epochs.get(namespace_id, 0)

    def namespace_epochs(self) -> dict[bytes, int]:
        return dict(self.epochs)

    def epochs_mark(self) -> int:
        return hash(frozenset(self.epochs.items())) & (1 << 64) - 1

    # --- signs of life

    def set_life_sign(
        self, view_number: int, sequence: int, is_master: bool, for_s: float, /
    ) -> None: ...

    def take_life_signs(self) -> list[Heard]:
        return []

    def raise_epoch(self, namespace_id: bytes, epoch: int) -> bool:
        if epoch <= self.epochs.get(namespace_id, 0):
            return False
        self.epochs[namespace_id] = epoch
        return True

    def location_cached(self, digest: bytes) -> bool:
        return False

    def stats(self) -> dict[str, Any]:
        """Those of a data plane without a disk that has done nothing."""
        nothing = Status().model_dump(include=set(NATIVE_SECTIONS))
        outcomes = dict.fromkeys(_native.PAGE_STATUSES, 0)
        nothing["operations"] |= {"set": outcomes, "get": outcomes}
        return {**nothing, "peers": [], "events_dropped": 0}

    def latencies(self) -> list[tuple[str, str, int, bytes]]:
        return []

    def workers(self) -> list[Mapping[str, Any]]:
        return []
