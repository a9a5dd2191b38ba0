"""The data plane, as Python sees it: one call per batch, never one per page.

Packed arguments are `bytes` of the layouts in docs/protocol.md: digests are 16 bytes each,
records (RecordRow) 48. Holder indices number node incarnations locally; 0 is this daemon.
Every method is thread safe and releases the GIL while it works. Errors: ValueError for bad
arguments, RuntimeError/OSError when the machine refuses (the text says what to do).
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from peercached.config import Config

DIGEST_BYTES: Final[int]
ROW_BYTES: Final[int]
SUMMARY_BUCKETS: Final[int]
SUMMARY_BYTES: Final[int]
SELF_HOLDER: Final[int]
NO_HOLDER: Final[int]
RESIDENT: Final[int]
WITHDRAW: Final[int]
RECORD_ROW: Final[Mapping[str, tuple[int, int]]]  # field -> (offset, bytes)
CHANNEL_END: Final[Mapping[str, tuple[int, int]]]
PAGE_STATUSES: Final[Sequence[str]]  # by number
CONFIG_KEYS: Final[Sequence[str]]  # that an Engine reads of its `config`

class Engine:
    def __init__(
        self,
        config: Config,
        *,
        incarnation: int,
        cluster_key: bytes,  # 16 bytes
        epochs: Mapping[bytes, int],  # namespace id -> epoch, of cleared namespaces
        why_epochs_unknown: str,  # not empty: no page of an earlier start is served
        removals_path: str,  # of the journal; empty: removals are not kept over restarts
        follow_wait_ms: int,
    ) -> None:
        """ValueError: the data plane does not take a key's value. RuntimeError: RDMA or the disk
        tier cannot be had as configured."""
    def guard_workers(self, socket_group: int, users: list[int], groups: list[int]) -> None:
        """Before bind_workers(): who may be a worker; -1 and none: whoever the socket's mode lets
        in."""
    def set_quotas(self, rules: list[tuple[str, int, int | None]]) -> None:
        """Before start(): (pattern of namespaces, bytes of the pool, of the disk), the first that
        fits."""
    def take_notices(self) -> list[str]:
        """Sentences for the log about who was refused; each kind now and then."""
    def listen(self) -> None:
        """Binds the data port and serves peers. RuntimeError with the remedy."""
    def bind_workers(self) -> None:
        """Takes the workers' socket path; nobody can connect yet. RuntimeError with the remedy."""
    def start(self) -> None:
        """Those two, if they were not done, and serves workers. OSError / RuntimeError with the
        remedy."""
    def stop(self) -> None: ...
    @property
    def data_port(self) -> int: ...
    @property
    def rails(self) -> int:
        """RDMA rails in use; 0: TCP only."""
    def transport(self) -> dict[str, Any]:
        """{"protocol": "rdma" | "tcp", "why": str, "fallback_reads": int,
        "fallback_peers": int, "rails": [{"rail": int,
        "device": str, "port": int, "gid": str, "gid_index": int, "netdev": str, "mtu": int,
        "rate_gbps": float, "numa_node": int, "up": bool, "why": str, "registered_bytes": int,
        "channels": int, "responders": int, "pages": int, "bytes": int, "errors": int,
        "doubted": [{"node_id": str, "why": str}]}]}"""

    # --- events (engine/control.h)
    @property
    def event_fd(self) -> int: ...
    def take_events(self, limit: int) -> list[tuple[Any, ...]]:
        """Each is (name, ticket, seconds left, fields...): peercached/events.py."""
    def answer(self, ticket: int, payload: bytes) -> None: ...
    def answer_removal(self, ticket: int, status: int, held: bytes, text: str) -> None:
        """`status`: of all its pages; `held`: digests of those that were there."""
    def give_up(self, ticket: int) -> None:
        """There will be no answer."""

    # --- nodes: the table of holder indices. A node incarnation gets an index while it is in the
    # view; `drop_node` makes its records and cached locations void at once.
    def add_node(self, node_id: str, incarnation: int) -> int: ...
    def drop_node(self, index: int) -> None: ...
    def disconnect_node(self, index: int) -> None: ...
    def connect_node(
        self,
        index: int,
        host: str,
        port: int,
        token: bytes,
        incarnation: int,
        rails: int,
        sealed: bool,
    ) -> None:
        """Where and how to READ from this node, after the peers' handshake. `rails`: that it has;
        0: over TCP. `sealed`: its port speaks TLS."""
    def channel_connected(self, connect_id: int, answer: bytes) -> None:
        """To the event connect_channel: the holder's packed ChannelAnswer."""
    def channel_refused(self, connect_id: int, why: str) -> None: ...
    def accept_channel(self, node_id: str, incarnation: int, offer: bytes, closed: bytes) -> bytes:
        """As the holder: a packed ChannelAnswer for the reader's packed ChannelEnd. `closed`:
        packed u32 numbers of its channels that are no more. ValueError for nonsense; RuntimeError
        when it cannot."""
    def suspect_node(self, index: int, suspect: bool) -> None:
        """While suspect, its pages are misses without waiting."""
    def prove_paths(self, indices: list[int], timeout_s: float) -> list[bool]:
        """Whether pages could come from these nodes: each is asked over the way that its pages
        take, in frames of many packets. Blocks for up to `timeout_s`."""
    def set_owes(self, index: int, owes: bool) -> None:
        """While it owes, it may have missed removals: no page of it is used."""
    def admit_reader(self, node_id: str, incarnation: int, token: bytes) -> None:
        """The token that node will show when it READs from us; replaces an older one."""
    def expel_reader(self, node_id: str, incarnation: int) -> None: ...

    # --- ring
    def set_ring(self, positions: bytes, nodes: bytes, replicas: int, view_number: int) -> None:
        """Packed u64 positions ascending and u16 holder indices: who owns what, from now on."""
    def set_shard_final(self, final: bool, view_number: int) -> None:
        """Whether every member is in sync with our shard: then a digest that we own and do not
        know is nowhere, and workers are told so without asking anybody."""
    def open_owner(self, index: int, is_open: bool) -> None:
        """Whether records go to that owner in frames. `set_ring` closes all."""

    @property
    def fence(self) -> int:
        """Of the publish frames that go out now (native/engine/fences.h)."""

    def raise_fence(self, holder: int, fence: int) -> None:
        """No publish frame of that holder with a lower one is taken any more."""

    def keep_final(self, ms: int) -> None:
        """That holds for so long from now on, unless it is said again."""
    def split(self, items: bytes, stride: int, first_only: bool = False) -> list[tuple[int, bytes]]:
        """Items (each led by its digest) by owner, in ring order of first appearance."""
    def owners(self, digest: bytes) -> list[int]: ...
    def ring_shares(self, owners: int = 1) -> list[tuple[int, float]]:
        """(holder, fraction of the digests of which it is among the first `owners` owners)"""

    # --- prompts (native/engine/prefixes.h)
    def prefixes(self, digests: bytes, rows: bytes) -> tuple[int, list[tuple[int, int, int]]]:
        """(pages up to the first that no node has, [(holder index, pages up to the first that it
        has not, of these in its pool)]): from our own pages, the copies, and these rows."""
    def copied(self) -> list[int]:
        """Indexes of the nodes whose records are copied here and up to date."""

    # --- our shard of the directory
    def shard_apply(self, holder: int, rows: bytes) -> tuple[int, int, int, int, int]:
        """(added, changed, withdrawn, old, full)"""
    def shard_lookup(self, digests: bytes) -> bytes: ...
    def shard_summary(self, holder: int) -> bytes:
        """SUMMARY_BUCKETS x (u64 hash, u64 count) of what we, an owner, hold for that holder."""
    def shard_replace(
        self, holder: int, bucket: int, as_of: int, rows: bytes
    ) -> tuple[int, int, int, int, int]: ...
    def shard_trim(self) -> int: ...

    # --- our own records, for resync
    def pool_summaries(self) -> tuple[int, dict[int, bytes]]:
        """(as_of generation, owner index -> packed summary) over all pages, pool and disk; owners
        of none are left out."""
    def pool_rows(self, owner: int, buckets: bytes) -> tuple[int, bytes]:
        """(as_of, rows) that `owner` owns, in the buckets whose byte in the 256-byte mask is 1."""
    def mark_published(self, rows: bytes) -> None: ...
    def begin_removal(self, digests: bytes) -> tuple[bytes, bool]:
        """As remove_local(), and until end_removal() of the same digests nobody sets them here.
        Several removals of one digest are counted. OverflowError: too many are under way."""
    def end_removal(self, digests: bytes) -> None: ...
    def remove_local(self, digests: bytes) -> tuple[bytes, bool]:
        """From pool and disk: rows withdrawn here, to be published; and whether that is written
        down, so that no restart brings them back. Waits for the file."""
    def drop_all(self) -> bool:
        """All pages of pool and disk are removed; False: that is not written down yet."""
    def hold_back(self) -> None:
        """Pages of an earlier start are not found until release_held(); those in the pool go.
        Before workers are served."""
    def release_held(self) -> None:
        """They are found again: the owners have to be told."""
    def begin_serving(self) -> None:
        """Until then nobody finds anything here, workers nor peers."""
    def end_serving(self) -> None:
        """Nor from now on."""
    def set_paused(self, paused: bool) -> None:
        """Nor while paused."""
    @property
    def removals_last(self) -> int:
        """Position of the newest removal in the journal."""
    @property
    def state_is_old(self) -> bool:
        """A disk folder or pool file was used with a later state of state_dir, or with another."""
    def removals_since(self, position: int) -> bytes | None:
        """Digests removed behind that position, in order; None if not all are known any more."""
    def begin_offer(self, records: bytes) -> None:
        """These pages are offered to a peer that lets us drop them. Until end_offer() a peer that
        offers us the same pages does not rely on our copies."""
    def end_offer(self, records: bytes) -> None: ...
    def give_away(self, records: bytes, unless_pinned: bool) -> int:
        """Tells the owners that these pages are no longer in the pool, although they are still:
        another node has taken them. Not of those set later under the same keys, nor, with
        `unless_pinned`, of those that are pinned or held here: these stay. Returns how many pages
        leave."""
    def drop_moved(self, records: bytes) -> None:
        """Drops these pages from the pool, if they were given away, and tells the
        owners. Copies on disk stay."""
    def promote(self, digests: bytes, timeout_ms: int) -> bytes:
        """Reads those from disk that are not in the pool: records of what is there now, kept for a
        moment, and withdrawals of what is not here at all; the rest cannot be had now. Waits for
        the disk: never on the event loop."""
    def warm(self, digests: bytes) -> None:
        """For a peer that uses them: they count as used now. Those only on the disk are promoted in
        the background, as far as there is room; returns at once."""
    def take_used(self) -> list[tuple[int, bytes]]:
        """(holder index, digests) of pages that were READ without their holders noticing, since the
        last time; 4096 a holder at most."""
    def evict(self, digests: bytes) -> tuple[int, int]:
        """(pages, payload bytes) that left our pool as by any eviction; what is pinned stays."""
    def evict_coldest(self, bytes: int) -> tuple[int, int]:
        """As evict(): the coldest pages, up to the first that makes it so many bytes."""
    def trace_get(
        self, namespace: str, key: bytes, length: int, timeout_ms: int
    ) -> tuple[int, float, float, list[tuple[str, float, float, int, int]]]:
        """Gets one page into memory of its own: (status, begin, end, steps), each step (name,
        begin, end, holder, status); times are time.monotonic()'s. Blocks: not on the event loop's
        thread, which answers the lookups of a get."""
    def trace_calls(self, on: bool) -> None:
        """Whether gets with a caller's span are traced."""
    def take_traced_calls(
        self,
    ) -> list[
        tuple[
            bytes,
            bytes,
            str,
            int,
            int,
            int,
            int,
            int,
            list[tuple[str, int, int, int, int, int, int]],
            int,
        ]
    ]:
        """Traced gets since the last call: (trace id, span id, namespace, begin, end, pages, ok,
        bytes, steps, steps left out), each step (name, begin, end, holder, status, pages, found).
        Times are time.monotonic_ns()'s."""
    @property
    def traced_calls_dropped(self) -> int: ...
    def set_taking(self, taking: bool) -> None:
        """While false, sets are answered `draining` at once."""
    def handovers(self, bytes_max: int) -> tuple[list[tuple[bytes, int, int, int, bytes]], int]:
        """Our pages, most recently used first: (namespace id, epoch, idle ms, moves, rows) in parts
        of at most 256 pages and, but for single larger pages, 8 MiB; and how many are left out
        because they are too large (64 MiB)."""
    def filling(self) -> tuple[int, int, int]:
        """Bytes that workers have set, bytes of sets until the pool evicts, and bytes of evicted
        pages that no other pool was known to have."""
    def coldest(self, bytes: int) -> tuple[list[tuple[bytes, int, int, int, bytes]], int]:
        """The same of the pages that are evicted while so many more bytes are set, and may be
        spilled."""
    def set_moves(self, digests: bytes, moves: int) -> None:
        """How often these have moved; 255: they move now, or another pool has them. coldest() has
        none that moved twice. Holds until they are used here again."""
    def adopt(
        self,
        holder: int,
        namespace_id: bytes,
        epoch: int,
        idle_ms: int,
        moves: int,
        spilled: bool,
        rows: bytes,
        timeout_ms: int,
    ) -> tuple[bytes, str, bool, int, int]:
        """Reads, verifies and publishes pages of a node that drains: (digests that are here now,
        why the others are not, whether that is for want of room). ValueError for more than a part,
        or for what cannot be pages."""
    def parts_of(self, digests: bytes) -> list[tuple[bytes, int, int, int, bytes]]:
        """Parts, as of handovers(), of those of these pages that are in our pool."""
    def removal_changes(self) -> int:
        """Grows with each removal. What was looked up at a lower value may be removed."""
    def fetch(
        self,
        holder: int,
        namespace_id: bytes,
        epoch: int,
        learnt_at: int,
        rows: bytes,
        timeout_ms: int,
    ) -> tuple[bytes, str]:
        """Copies pages of a node that keeps its own: (digests that are here now, why the others
        are not). `learnt_at`: removal_changes() before the rows were looked up. ValueError as in
        adopt()."""

    # --- pins (engine/holds.h)
    def pin(self, digests: bytes, for_ms: int, bytes_max: int) -> tuple[bytes, str]:
        """Keeps pages from eviction: (a page status for each: ok, absent or no_space, and why some
        were refused). `bytes_max`: of all pinned pages."""
    def unpin(self, digests: bytes) -> bytes:
        """A page status for each: ok, or absent if it was not pinned."""
    def pinned(self, limit: int, namespace_id: bytes) -> list[tuple[bytes, bytes, int, float]]:
        """(digest, namespace id, bytes, seconds left), of one namespace or, if it is empty, of
        all; those that end first."""
    def pinned_by_namespace(self) -> list[tuple[bytes, int, int]]:
        """(namespace id, pages, bytes)"""
    def hottest(
        self, limit: int, namespace_id: bytes
    ) -> list[tuple[bytes, bytes, int, int, float]]:
        """(digest, namespace id, bytes, reads lately, seconds since the last use), of one
        namespace or of all; the most reads first."""
    def set_replicas_max(self, bytes: int) -> None:
        """The room for replicas in the pool."""
    def hot_holders(self) -> list[int]:
        """Indexes of the nodes that have pages for replicate()."""
    def replicate(self, timeout_ms: int) -> None:
        """Copies pages into the pool that workers here often read from other nodes."""
    def note_sets(self, on: bool) -> None:
        """Whether take_fresh() shall have the pages that are set from now on."""
    def has_fresh(self) -> bool:
        """Whether take_fresh() has any."""
    def take_fresh(self) -> list[tuple[bytes, int, int, int, bytes]]:
        """Parts, as of handovers(), of the pages set since the last call."""
    def local_rows(self, digests: bytes) -> bytes:
        """Records of those held in our pool, holder 0."""

    # --- signs of life (native/transfer/tcp/life_signs.h)
    def say_life(
        self, view_number: int, sequence: int, is_master: bool, for_s: float, /
    ) -> None: ...
    def take_life_signs(self) -> list[tuple[int, int, int, int, bool, float, float]]:
        """Of whoever gave one since the last call: (incarnation, view number, sequence, epochs
        mark, in office, seconds since, seconds since the last one in an answer to us, infinity if
        there was none)."""

    # --- namespaces
    def digest(self, namespace: str, key: bytes) -> bytes: ...
    def digests(self, namespace: str, keys: list[str]) -> bytes:
        """Packed. ValueError names a key that is none. Opens no namespace."""
    def namespace_epoch(self, namespace_id: bytes) -> int:
        """0: it was never cleared."""
    def epochs_mark(self) -> int:
        """A hash of all namespace epochs: nodes with the same epochs have the same."""
    def namespace_epochs(self) -> dict[bytes, int]:
        """namespace id (16 bytes) -> epoch, for those above 0."""
    def raise_epoch(self, namespace_id: bytes, epoch: int) -> bool:
        """True if it was below; its pages here are invisible from now on and swept later."""
    def namespace_id(self, namespace: str) -> bytes: ...
    def location_cached(self, digest: bytes) -> bool: ...
    def stats(self) -> dict[str, Any]:
        """A snapshot: pool, shard, ipc, tcp, locations, operations, peers. Never blocks."""
    def latencies(self) -> list[tuple[str, str, int, bytes]]:
        """(kind, label, sum in ns, packed u64 counts by bucket) of set, exists, promote, get
        (label: the farthest source), peer_read (holder index) and rail_read (number)."""
    def workers(self) -> list[Mapping[str, Any]]: ...

class ShardTable:
    """A directory table of its own: for tests, the simulator and the benchmark."""
    def __init__(self, capacity_entries: int) -> None: ...
    def add_holder(self, holder: int) -> None: ...
    def drop_holder(self, holder: int) -> None: ...
    def swept(self, holder: int) -> bool: ...
    def apply(self, holder: int, rows: bytes) -> tuple[int, int, int, int, int]: ...
    def lookup(self, digests: bytes) -> bytes: ...
    # Of what `owner`, whose table this is, owns in `ring`:
    def summary(self, holder: int, ring: RingTable, owner: int) -> bytes: ...
    def replace(
        self, holder: int, bucket: int, as_of: int, rows: bytes, ring: RingTable, owner: int
    ) -> tuple[int, int, int, int, int]: ...
    def trim(self, ring: RingTable, owner: int) -> int: ...
    def sweep(self, records: int) -> int: ...
    def stats(self) -> dict[str, int]: ...

class RingTable:
    def __init__(self, positions: bytes, nodes: bytes, replicas: int) -> None: ...
    def owners(self, digest: bytes) -> list[int]: ...
    def split(
        self, items: bytes, stride: int, first_only: bool = False
    ) -> list[tuple[int, bytes]]: ...
    def shares(self, owners: int = 1) -> list[tuple[int, float]]: ...
    # A holder's records, as Engine.pool_summaries and pool_rows give them:
    def summaries(self, rows: bytes) -> dict[int, bytes]: ...
    def rows_of(self, rows: bytes, owner: int, buckets: bytes) -> bytes: ...

class NodeTable:
    """Holder indices, as the engine gives them out."""
    def __init__(self, self_id: str, self_incarnation: int) -> None: ...
    def add(self, node_id: str, incarnation: int, shard: ShardTable) -> tuple[int, bool]:
        """The index, and whether it is new. One that was dropped comes again when `shard` is swept
        of it."""
    def drop(self, index: int) -> None: ...

def map_rows(rows: bytes, mapping: bytes) -> bytes:
    """Rewrites each row's holder through `mapping` (packed u16 by index); 0xffff drops the row.
    ValueError when a row's holder is outside the mapping."""

def missing(digests: bytes, items: bytes, stride: int) -> bytes:
    """The digests that lead none of the items, in order."""

def standing(rows: bytes, changes: bytes) -> bytes:
    """The rows without those records that a withdrawal among `changes` takes back."""

def split_buckets(rows: bytes) -> list[tuple[int, bytes]]:
    """Rows by summary bucket, ascending; buckets without rows are left out."""

def limits(bytes_per_case: int) -> dict[str, float]:
    """Machine limits for the benchmark, GB/s: memcpy by page size, checksum, fused copy."""

class BareReads:
    """RDMA READs from one port of this machine ("mlx5_0:1", and which of its GIDs) to another, with
    nothing around them: `read_bytes` each, from a place of `source` to the same place of `dest`,
    both writable and of one size. RuntimeError where that cannot be."""
    def __init__(
        self,
        source_port: str,
        source_gid: int,
        reader_port: str,
        reader_gid: int,
        source: memoryview,
        dest: memoryview,
        read_bytes: int,
        queue_pairs: int,
    ) -> None: ...
    def read(self, count: int) -> float:
        """Makes `count` READs, place after place and again from the first; the seconds they took.
        One thread at a time. RuntimeError when one fails."""

def latency_bounds_us() -> list[int]:
    """Inclusive upper bounds of the buckets of `Engine.latencies`; the last has none."""

def build_info() -> dict[str, str]: ...
def sample_events() -> list[tuple[Any, ...]]:
    """One event of each kind, as from Engine.take_events, for tests of their handlers."""
