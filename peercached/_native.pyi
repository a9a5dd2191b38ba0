"""The data plane, as Python sees it: one call per batch, never one per page.

Packed arguments are `bytes` of the layouts in docs/protocol.md: digests are 16 bytes each,
records (RecordRow) 48. Holder indices number node incarnations locally; 0 is this daemon.
Every method is thread safe and releases the GIL while it works. Errors: ValueError for bad
arguments, RuntimeError/OSError when the machine refuses (the text says what to do).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from peercached.config import Config

DIGEST_BYTES: Final[int]
ROW_BYTES: Final[int]
SELF_HOLDER: Final[int]
NO_HOLDER: Final[int]
RESIDENT: Final[int]
WITHDRAW: Final[int]
RECORD_ROW: Final[Mapping[str, tuple[int, int]]]  # field -> (offset, bytes)
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
    def own_transports(self) -> dict[str, bytes]:
        """Transports in use beside TCP: their names, and what each tells its peers."""
    def transport(self) -> dict[str, Any]:
        """{"protocol": "rdma" | "tcp", "why": str, "fallback_reads": int,
        "fallback_peers": int, "rails": [{"rail": int,
        "device": str, "port": int, "gid": str, "gid_index": int, "netdev": str, "mtu": int,
        "rate_gbps": float, "numa_node": int, "up": bool, "why": str, "registered_bytes": int,
        "channels": int, "responders": int, "pages": int, "bytes": int, "errors": int,
        "doubted": [{"node_id": str, "why": str}]}]}"""

    # --- events (engine/control/events.h)
    @property
    def event_fd(self) -> int: ...
    def take_events(self, limit: int) -> list[tuple[Any, ...]]:
        """Each is (name, ticket, seconds left, fields...): peercached/events.py."""
    def answer(self, ticket: int, payload: bytes) -> None: ...
    def answer_removal(self, ticket: int, status: int, were_here: bytes, text: str) -> None:
        """`status`: of all its pages; `were_here`: digests of those that were there."""
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
        offers: dict[str, bytes],
        sealed: bool,
    ) -> None:
        """Where and how to READ from this node, after the peers' handshake. `offers`: its
        transports beside TCP by name, with the bytes that each says of itself. `sealed`: its port
        speaks TLS."""
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
    def owners(self, digest: bytes) -> list[int]: ...
    def ring_shares(self, owners: int = 1) -> list[tuple[int, float]]:
        """(holder, fraction of the digests of which it is among the first `owners` owners)"""

    def same_keys(self) -> list[tuple[int, int, int]]:
        """(holder, pages that workers here set while it had the same keys, of them with other
        bytes), since it is in the view"""

    # --- prompts (native/engine/records/prefixes.h)
    def prefixes(self, digests: bytes, rows: bytes) -> tuple[int, list[tuple[int, int, int]]]:
        """(pages up to the first that no node has, [(holder index, pages up to the first that it
        has not, of these in its pool)]): from our own pages, the copies, and these rows."""
    def followed(self) -> list[int]:
        """The members whose records answer here."""

    @property
    def stores_all(self) -> bool:
        """Whether it keeps all records of those that it follows, not only what it owns."""

    @property
    def follows(self) -> bool:
        """Whether this node keeps records of others."""

    @property
    def final_view(self) -> int:
        """The view for which all records are here: a page that this node owns and has no record of
        is nowhere. 0: none."""

    def followers(self) -> list[tuple[int, int, bool]]:
        """The members that follow our records: (incarnation, changes that it lacks, whether it has
        a lease). 2**64 - 1: it has no records of ours."""

    @property
    def all_have_asked(self) -> bool:
        """Whether all members of the view follow our records, or have begun to."""

    def set_patience(self, ms: int) -> None:
        """How long a set waits for a silent owner."""

    def find_records(self, digests: bytes, timeout_ms: int) -> bytes:
        """Records of these digests at other nodes. Blocks while owners are asked."""

    def ask_owner(self, owner: int, digests: bytes, timeout_ms: int) -> tuple[bytes, bool] | None:
        """What one owner knows, this node perhaps, and whether it is all. Blocks. None: it did not
        answer."""

    def begin_removal(self, digests: bytes, removal: int) -> tuple[bytes, bool]:
        """As remove_local(), and until end_removal() of the same digests nobody sets them here.
        `removal`: its number, the same at all nodes (RemovalId.mark). Several removals of one
        digest are counted. OverflowError: too many are under way."""
    def end_removal(self, digests: bytes) -> None: ...
    def tell_followers(self, digests: bytes) -> int:
        """Has all followers of our records told at once. From the returned position on, none names
        a page of these digests that has left this node before the call; without digests, any page.
        """

    def followers_behind(self, position: int) -> list[tuple[int, float]]:
        """Followers that may still name such pages: (incarnation, seconds until they cannot any
        more). After this, the event `follower_moved` comes when one has asked us again."""

    def remove_local(self, removed: bytes) -> tuple[bytes, bool]:
        """`removed`: rows of a digest and its removal's number. From pool and disk: rows withdrawn
        here, to be published; and whether that is written down, so that no restart brings them
        back. Waits for the file."""
    def drop_all(self) -> bool:
        """All pages of pool and disk are removed; False: that is not written down yet."""
    def hide_older(self) -> None:
        """Pages of an earlier start are not found until show_older(); those in the pool go.
        Before workers are served."""
    def show_older(self) -> None:
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
        """Rows of remove_local() behind that position, in order; None if not all are known any
        more."""
    def unknown_removals(self, removed: bytes) -> bytes:
        """Those of another node's rows that our journal lacks."""
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
    # --- the object store; entries are packed as ENTRY of peercached/cold/format.py
    def add_object(
        self,
        name: bytes,
        home: bytes,
        namespace_id: bytes,
        epoch: int,
        generation: int,
        entries: bytes,
    ) -> bool:
        """Puts the pages of an object into the index. False: there is no room."""
    def stored_pages(
        self, digests: bytes, behind_bytes: int
    ) -> list[tuple[bytes, bytes, bytes, int, int, bytes, bytes]]:
        """(name, home, namespace id, epoch, generation, entries, entries behind) of each object
        that has some of these pages and is not in the pool; the entries in the order of their
        places. The last ones are those that follow within so many bytes, while the pool has free
        room."""
    def stored_at(self, digests: bytes) -> list[tuple[bytes, bytes, int, int, bytes]]:
        """(home, namespace id, epoch, generation, entry) of each of these pages that the store
        has, also if it is in the pool."""
    def stored_objects(self) -> list[tuple[bytes, int]]:
        """(name, bytes of its pages in the index) of each object."""
    def stored_in(self, name: bytes, digests: bytes) -> bytes:
        """The entries of these pages that readers find in that object."""
    def drop_stored(self, digests: bytes) -> None: ...
    def drop_objects(self, names: bytes) -> None: ...
    def raise_generation(self, generation: int) -> None:
        """Pages that are set from now on are born in that generation of the store, or a later."""
    def drop_stored_below(self, namespace_id: bytes, epoch: int, generation: int) -> None: ...
    def vouch_until(self, until_s: float) -> None:
        """Until that time of time.monotonic(), exists() may rely on the index."""
    def copy_pages(
        self, digests: bytes, bytes_max: int, sealed_with: bytes
    ) -> tuple[bytes, bytes, bytes]:
        """(entries, payloads, the u32 generation that each page was born in) of the first ones that
        are in the pool or on the disk, up to so many bytes. `sealed_with`: as of cold/sealing.py;
        empty: they are not sealed."""
    def land_pages(
        self,
        namespace_id: bytes,
        epoch: int,
        generation: int,
        entries: bytes,
        base: int,
        payloads: Any,
        valid_until_s: float,
        timeout_ms: int,
        ahead: bool,
        sealed_with: bytes,
    ) -> tuple[bytes, bytes, str]:
        """Takes pages of an object into the pool, until that time of time.monotonic(). `payloads`:
        a buffer, the object's bytes from `base` on. `ahead`: nobody has asked for them, so they
        take only free room. `sealed_with`: as of cold/sealing.py; empty: they are not sealed.
        Returns (digests in the pool, digests whose bytes are not those of their checksum or seal,
        why others were not taken)."""
    def leaving_next(
        self, bytes: int, uses_min: int, part_bytes: int, under_way: bytes
    ) -> list[tuple[bytes, int, bytes, int]]:
        """(namespace id, epoch, digests, bytes) of pages that were used so often, are not in the
        store nor under way to it, and leave next: the disk evicts them, or the pool does while
        `bytes` more are set, and they are not on the disk. One part for each namespace."""
    def leaving_at_end(
        self, uses_min: int, disk_stays: bool, part_bytes: int
    ) -> list[tuple[bytes, int, bytes, int]]:
        """The same of pages of the pool that are lost when the process ends, in many parts.
        `disk_stays`: pages on the disk are not lost."""
    def store_stats(self) -> dict[str, int]: ...
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

    # --- hints (engine/storage/hinted_pages.h)
    # Each is about pages of one namespace; those of another one count as absent.
    def brought_by_hint(self, namespace_id: bytes, epoch: int, digests: bytes) -> None:
        """Among the first to go until they are used."""
    def unused_hint_bytes(self, namespace_id: bytes, epoch: int) -> int:
        """Of pages that hints brought here and nobody has used yet."""
    def retain(
        self,
        namespace_id: bytes,
        epoch: int,
        digests: bytes,
        for_ms: int,
        bytes_max: int,
        namespace_bytes_max: int,
    ) -> tuple[bytes, str]:
        """Eviction takes others first: (a page status for each: ok, absent or no_space, and why
        some were refused)."""
    def first_to_go(self, namespace_id: bytes, epoch: int, digests: bytes) -> bytes:
        """A page status for each: ok or absent."""
    def to_disk(self, namespace_id: bytes, epoch: int, digests: bytes, write: bool) -> bytes:
        """Gives up the memory of pages on the disk, after `write` of the others. A page status for
        each: ok, pending (being written: ask again) or absent."""

    # --- pins (engine/storage/holds.h)
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
        """Records of those held in our pool or on our disk, holder 0."""

    # --- signs of life (native/transfer/tcp/life_signs.h)
    def set_life_sign(
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
    # Events of pages; RuntimeError if kv_events_port is 0.
    def kv_drain(self, bytes_max: int) -> tuple[list[tuple[bytes, bytes, int]], bool]:
        """Batches to send, as (topic, payload, events), and whether there are more."""
    def kv_snapshot(self) -> list[tuple[bytes, bytes, int]]:
        """Batches with all that was told so far."""
    def kv_questions(self) -> list[tuple[int, bytes]]:
        """(holder, digests): pages whose names these nodes are to be asked for."""
    def kv_answered(self, holder: int, digests: bytes, names: bytes) -> None:
        """ValueError if these are no names of these pages."""
    def kv_unanswered(self, holder: int, digests: bytes) -> None: ...
    def kv_names(self, digests: bytes) -> bytes: ...
    def kv_stats(self) -> dict[str, int]: ...
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
    def sweep(self, records: int) -> int: ...
    def stats(self) -> dict[str, int]: ...

class RingTable:
    def __init__(self, positions: bytes, nodes: bytes, replicas: int) -> None: ...
    def owners(self, digest: bytes) -> list[int]: ...
    def shares(self, owners: int = 1) -> list[tuple[int, float]]: ...

class NodeTable:
    """Holder indices, as the engine gives them out."""
    def __init__(self, self_id: str, self_incarnation: int) -> None: ...
    def add(self, node_id: str, incarnation: int) -> int: ...
    def drop(self, index: int) -> None: ...

# Of a follower: (number, position, view of the lease that it holds, ring whose records it stores,
# whether it wants a scan).
Question = tuple[int, int, int, int, int]
# Of an answer, or a push: (rows, from, to, anew, more, view of the lease); see
# native/directory/feed.h.
FeedPart = tuple[bytes, int, int, bool, bool, int]

class Feed:
    """A holder's log, without I/O (native/directory/feed.h). Times are the caller's, in seconds."""
    def __init__(self, changes_max: int) -> None: ...
    def append(self, rows: bytes) -> None: ...
    def forget(self) -> None: ...
    def set_view(self, number: int, members: list[int], now: float) -> None: ...
    @property
    def end(self) -> int: ...
    @property
    def all_have_asked(self) -> bool: ...
    def asked(self, follower: int, question: Question) -> bool: ...
    def has_news(self, follower: int, question: Question, told: int) -> bool: ...
    def answer(
        self,
        follower: int,
        question: Question,
        now: float,
        wanted: Callable[[bytes], bool] | None = None,
    ) -> FeedPart | None:
        """`wanted`: whether the follower stores that digest; None: it stores all."""
    def push(
        self, follower: int, changes_max: int, wanted: Callable[[bytes], bool] | None = None
    ) -> FeedPart | None: ...
    def ring_of(self, follower: int) -> int: ...
    def stands(self, follower: int, position: int) -> None: ...
    def stands_at(self, follower: int, position: int) -> bool: ...
    def behind(
        self, position: int, now: float, of_earlier_view: bool = False
    ) -> list[tuple[int, float]]: ...
    def last_of(self, digests: bytes, now: float) -> int: ...

class RecordTable:
    """Other nodes' records, without I/O (native/directory/record_table.h)."""
    def __init__(self, records_max: int, clock: Callable[[], float]) -> None: ...
    def ask(self, holder: int, now: float) -> Question: ...
    def take(self, holder: int, part: FeedPart) -> bool: ...
    def push(self, holder: int, part: FeedPart) -> int: ...
    def is_lost(self, holder: int) -> None: ...
    def forget(self, holder: int) -> None: ...
    def store_only(self, wanted: Callable[[bytes], bool] | None, ring: int) -> None:
        """`wanted`: as in Feed.answer(), for the ring of that number; None and 0: all."""
    def set_view(self, number: int, members: list[int]) -> None: ...
    def find(self, digests: bytes) -> tuple[bytes, int]:
        """(rows, view in which there are no others, if an owner of these digests asks; 0: none)"""
    def find_all(self, digests: bytes) -> bytes: ...
    def holders(self) -> list[int]: ...
    def sweep(self, records: int) -> int: ...
    @property
    def records(self) -> int: ...

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
