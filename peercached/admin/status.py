"""The status document: everything an operator may want to know of one daemon, in one message.

The daemon fills it, `peercachectl` prints it, tests assert on it. Every field has a default and
unknown fields are kept, so that a newer daemon and an older `peercachectl` still agree on what
they both know; `schema_version` rises only when a field changes its meaning.

Incarnations and generations are 64-bit and go out as text (16 hexadecimal digits): JSON readers
that keep numbers in doubles, `jq` among them, would round them.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

SCHEMA_VERSION = 1

# Of pages that a get delivered: where they were, and which of Status.operations counts them.
HITS_BY_TIER = {
    "pool": "get_local",
    "disk": "get_disk",
    "peer": "get_remote",
    "peer_disk": "get_peer_disk",
}


def _hexadecimal(value: Any) -> Any:
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:016x}"
    return value


def _hex_bytes(value: Any) -> Any:
    return value.hex() if isinstance(value, bytes) else value


# A 64-bit number as 16 hexadecimal digits; made from an int as well.
Hex64 = Annotated[str, BeforeValidator(_hexadecimal)]
# A digest or namespace id as 32 hexadecimal digits; made from bytes as well.
Hex128 = Annotated[str, BeforeValidator(_hex_bytes)]


class Part(BaseModel):
    model_config = ConfigDict(extra="allow")


class Node(Part):
    """This daemon."""

    id: str = ""
    incarnation: Hex64 = ""
    version: str = ""
    host: str = ""
    meta_port: int = 0
    data_port: int = 0
    metrics_host: str = ""
    metrics_port: int = 0  # 0: nothing is served
    socket_path: str = ""
    pid: int = 0
    uptime_s: float = 0.0


class Health(Part):
    """One thing that is not as it should be, for a person who can act on it."""

    code: str = ""  # its kind: docs/health.md; empty from an older daemon
    severity: Literal["error", "warning", "info"] = "warning"
    sentence: str
    remedy: str = ""


class Security(Part):
    """Who was kept out of the meta port; counters since the start of the daemon."""

    cluster_secret: bool = False
    tls: bool = False
    tls_not_after: str = ""  # the first end, of this node's certificate or its authority's
    tls_seconds_left: int = 0
    tls_reloads: int = 0
    data_sealed: bool = False  # data_port speaks TLS
    refused_handshakes: int = 0  # without the cluster secret
    misfit_certificates: int = 0  # of another node than the caller said
    unauthenticated_calls: int = 0  # without a session
    slow_handshakes: int = 0
    crowded_handshakes: int = 0
    meta_connections: int = 0
    meta_connections_unproven: int = 0
    meta_shut_unproven: int = 0  # proved nothing in time
    meta_shut_crowd: int = 0  # too many of one address
    meta_ended_silent: int = 0  # with TLS: failed in it


class PoolClass(Part):
    """One size class of the pool."""

    stride_bytes: int = 0
    slots: int = 0
    used: int = 0
    spans: int = 0
    evictions: int = 0
    pinned: int = 0  # slots that are read or being set right now


class Pool(Part):
    """The published pool; counters since the start of the daemon."""

    capacity_bytes: int = 0
    used_bytes: int = 0
    payload_bytes: int = 0
    keys: int = 0
    reserved: int = 0
    pins: int = 0
    sets: int = 0
    evictions: int = 0
    removals: int = 0
    span_moves: int = 0
    no_space: int = 0
    classes: list[PoolClass] = []


class Quota(Part):
    """What one namespace holds of the pool and may hold; counters since its last clear."""

    namespace: str = ""
    bytes: int = 0  # of slots, with their headers
    quota_bytes: int = 0
    evictions: int = 0  # of its own pages, to stay within the quota
    refused: int = 0  # pages for which there was no such room
    disk_bytes: int = 0  # room that its pages take on the disk, those that wait to be written too
    disk_quota_bytes: int = 0  # 0: none
    disk_skipped: int = 0  # pages not written, to stay within it; since the start of the daemon


class Dropped(Part):
    """Pages of a pool file that are not served again, by reason."""

    damaged_headers: int = 0
    damaged_payloads: int = 0
    unfinished: int = 0
    cleared: int = 0
    removed: int = 0
    duplicates: int = 0


class Recovery(Part):
    """What was found in `pool_file` at the start of the daemon."""

    file: str = ""
    why_fresh: str = ""  # why all of it was dropped; empty if it was not
    pages: int = 0
    bytes: int = 0
    seconds: float = 0.0
    dropped: Dropped = Field(default_factory=Dropped)
    damaged_spans: int = 0


class Removals(Part):
    """Removals under way, and their journal in `state_dir` (docs/consistency.md)."""

    running: int = 0  # pages that are being removed, whoever began it: they cannot be set
    running_s: float = 0.0  # for how long, of the oldest
    unsure: int = 0  # of those that this node removes: some process may still have them
    unsure_s: float = 0.0  # for how long, of the oldest
    missing: dict[str, str] = Field(default_factory=dict)  # node id -> why it has not answered
    silent: list[str] = Field(default_factory=list)  # nodes that went without a word
    vouches: bool = True  # it has missed no removal itself
    # Who may know what was removed from pages of an earlier start, which are not served until then.
    held_back_for: list[str] = Field(default_factory=list)
    store_problem: str = ""  # why what is known of other nodes cannot be kept
    last: int = 0  # position of the newest one
    floor: int = 0  # copies that were set below it are not served after a restart
    entries: int = 0
    waiting: int = 0  # removed, but not written down: a restart may bring them back
    problem: str = ""  # why


class Disk(Part):
    """The disk tier; counters since the start of the daemon. No state: there is none."""

    state: Literal["", "on", "read_only", "stalled"] = ""
    why: str = ""  # unless on
    path: str = ""
    io: str = ""  # how it does its I/O
    size_bytes: int = 0
    used_bytes: int = 0
    segments: int = 0
    pages: int = 0
    payload_bytes: int = 0
    index_bytes: int = 0
    queued_pages: int = 0  # set, and not written yet
    queued_bytes: int = 0
    pages_written: int = 0
    payload_bytes_written: int = 0
    disk_bytes_written: int = 0  # with carried pages and padding: divided by the payload's bytes,
    pages_carried: int = 0  # this is the write amplification
    pages_evicted: int = 0
    segments_evicted: int = 0
    skipped_full: int = 0  # not written, because the queue was full
    skipped_off: int = 0
    skipped_old: int = 0
    skipped_large: int = 0
    skipped_quota: int = 0  # their namespaces hold what they may; see quotas
    page_bytes_max: int = 0  # larger pages are not written: skipped_large
    write_errors: int = 0
    pages_read: int = 0
    reads_absent: int = 0
    reads_corrupt: int = 0
    reads_failed: int = 0
    reads_late: int = 0
    recovery_ms: int = 0
    recovered_pages: int = 0
    recovery_corrupt: int = 0
    recovery_rejected: int = 0
    promoted: int = 0  # from disk into the pool, for workers here, peers and `exists`
    promoted_bytes: int = 0
    warmed: int = 0  # of these: for `exists`
    promotes_not_now: int = 0
    promotes_late: int = 0
    promotes_failed: int = 0
    promotes_absent: int = 0
    promotes_asked: int = 0  # calls to peers
    promotes_served: int = 0  # calls of peers
    promotes_refused: int = 0


class Shard(Part):
    """This node's part of the directory; counters since the start of the daemon."""

    entries: int = 0
    bytes: int = 0
    dead_entries: int = 0
    capacity_entries: int = 0
    added: int = 0
    changed: int = 0
    withdrawn: int = 0
    old: int = 0
    full: int = 0
    bad: int = 0  # rows refused because they cannot be records
    lookups: int = 0
    hits: int = 0


class Copies(Part):
    """Copies of other nodes' records, which settle lookups without a message."""

    holders: int = 0  # nodes that are copied now
    records: int = 0
    records_max: int = 0  # 0: no node is copied
    bytes: int = 0
    begun: int = 0  # times that a node was copied from its beginning
    no_room: int = 0  # times that a node's records did not fit


class Locations(Part):
    """The location cache: records of other nodes' pages that lookups have brought."""

    entries_max: int = 0
    hits: int = 0
    misses: int = 0


class Ipc(Part):
    """The worker-facing server; counters since the start of the daemon."""

    connections: int = 0
    accepted: int = 0
    refused: int = 0
    bad_frames: int = 0
    forbidden: int = 0  # of those refused: by user and group
    crowded: int = 0  # of those refused: too many of one process or user
    late_hellos: int = 0
    requests_refused: int = 0  # for want of memory for large ones
    regions_lost: int = 0
    sets: int = 0
    gets: int = 0
    exists: int = 0
    others: int = 0
    given_up: int = 0  # requests that their worker did not wait for to the end


class Worker(Part):
    """One attached worker process."""

    attachment: int = 0
    pid: int = 0
    uid: int = 0
    name: str = ""
    namespace: str = ""
    connections: int = 0
    regions: int = 0
    region_bytes: int = 0
    requests: int = 0
    given_up: int = 0  # requests that the worker did not wait for to the end
    stuck: int = 0  # of these: the daemon is still at work in the worker's memory


class DoubtedPath(Part):
    """A peer that no page is read from by this rail now."""

    node_id: str = ""
    why: str = ""


class Rail(Part):
    """One RDMA device and port in use."""

    rail: int = 0
    device: str = ""
    port: int = 0
    gid: str = ""
    gid_index: int = 0
    netdev: str = ""
    mtu: int = 0  # bytes
    rate_gbps: float = 0.0
    numa_node: int = -1
    up: bool = True
    why: str = ""  # why it is not up
    registered_bytes: int = 0
    channels: int = 0  # to peers whose pages are read here
    responders: int = 0  # of peers that read this node's pages
    pages: int = 0  # read here; counters since the start of the daemon
    bytes: int = 0
    errors: int = 0
    doubted: list[DoubtedPath] = []  # until a channel of its own has proved that the rail works


class Transport(Part):
    """How this node's pages travel: what was taken at start, and why."""

    protocol: str = ""  # "rdma" or "tcp"
    why: str = ""
    rails: list[Rail] = []
    fallback_reads: int = 0  # over TCP, of peers that have RDMA, while no rail reached them
    fallback_peers: int = 0  # that have RDMA, and were read last over TCP
    # As the reader and as the holder, since the start of the daemon.
    channels_connected: int = 0
    channels_refused: int = 0
    channels_accepted: int = 0
    accepts_refused: int = 0


class Transfer(Part):
    """READs from one peer's pool; counters since the peer's incarnation was first seen."""

    node_id: str = ""
    incarnation: Hex64 = ""
    engine: str = ""  # "rdma" or "tcp": what this node and that peer have in common
    channels: int = 0
    pages: int = 0
    bytes: int = 0
    errors: int = 0
    deadlines: int = 0
    corrupt: int = 0  # the right header came with bytes that do not have its checksum


class TcpServer(Part):
    """Pages that peers read from this node over TCP; counters since the start of the daemon."""

    channels: int = 0
    accepted: int = 0
    refused: int = 0
    bad_hellos: int = 0
    bad_frames: int = 0
    crowded: int = 0  # of those refused: too many of one address or peer
    unauthorised: int = 0  # of the bad hellos: without the token of a handshake
    late_hellos: int = 0
    pages: int = 0
    bytes: int = 0
    stale: int = 0
    stalls: int = 0


class Member(Part):
    """One node of the current view."""

    node_id: str = ""
    incarnation: Hex64 = ""
    host: str = ""
    peer_port: int = 0
    data_port: int = 0
    pool_bytes: int = 0
    rails: int = 0  # RDMA rails that it has
    protocol: str = ""  # how its pages come here: "rdma" or "tcp"; empty of this node itself
    suspect: bool = False
    state: str = "alive"  # or "leaving"
    is_self: bool = False
    ring_share: float = 0.0  # fraction of the digests that this node owns first


class Master(Part):
    """One of the nodes that keep the membership."""

    node_id: str = ""
    endpoint: str = ""
    is_self: bool = False
    answers: bool = False
    problem: str = ""


class Membership(Part):
    """The view this daemon works with. View 0: it knows only itself."""

    view_number: int = 0
    view_mark: str = ""  # nodes with the same number and mark have the same view
    heads: list[str] = []  # as configured
    kind: str = ""  # "embedded" or "etcd"
    is_master: bool = False
    masters: list[Master] = []  # in order
    silence_s: dict[str, float] = {}  # as a master: since each member was heard
    heartbeats_sent: int = 0
    signs_counted: int = 0  # signs of life of members, which stand in for heartbeats
    members: list[Member] = []


class Stream(Part):
    """This holder's stream of records to one owner."""

    owner: str = ""
    state: str = ""  # "connecting", "resync", "live"
    acknowledged: int = 0  # highest batch number acknowledged
    queued: int = 0  # batches not acknowledged yet
    lag_s: float = 0.0  # age of the oldest of those that were sent
    resyncs: int = 0


class Drain(Part):
    """A drain of this node (`peercachectl drain`)."""

    state: str = "no"  # "handing over", "drained", "leaving", "left"
    seconds: float = 0.0  # since it began
    pages: int = 0  # held when it began
    bytes: int = 0
    budget_bytes: int = 0
    handed_pages: int = 0
    handed_bytes: int = 0
    complete: bool = False  # all pages within the budget were taken
    outcome: str = ""  # for people, at the end of handing over
    refused_pages: int = 0  # of sets, since the start of the daemon


class Handover(Part):
    """Pages taken over from nodes that drain; counters since the start of the daemon."""

    adopted: int = 0
    adopted_bytes: int = 0
    adopt_refused: int = 0


class Holds(Part):
    """Pages kept for a promise of `exists`."""

    pages: int = 0
    bytes: int = 0
    refused: int = 0  # counter since the start of the daemon


class Metrics(Part):
    """The HTTP door for monitoring; counters since the start of the daemon."""

    connections: int = 0
    requests: int = 0
    refused: int = 0  # connections beyond the bound
    displaced: int = 0  # silent connections that had to make room
    bad: int = 0  # requests that make no sense
    cut: int = 0  # clients that were too slow
    failed: int = 0  # by our fault


class Namespace(Part):
    """A namespace that has been cleared at least once, or is in use here."""

    id: Hex128 = ""
    name: str = ""
    epoch: int = 0


class Status(Part):
    """The whole document."""

    schema_version: int = SCHEMA_VERSION
    node: Node = Field(default_factory=Node)
    health: list[Health] = []
    security: Security = Field(default_factory=Security)
    pool: Pool = Field(default_factory=Pool)
    quotas: list[Quota] = []
    recovery: Recovery = Field(default_factory=Recovery)
    removals: Removals = Field(default_factory=Removals)
    disk: Disk = Field(default_factory=Disk)
    shard: Shard = Field(default_factory=Shard)
    copies: Copies = Field(default_factory=Copies)
    locations: Locations = Field(default_factory=Locations)
    ipc: Ipc = Field(default_factory=Ipc)
    workers: list[Worker] = []
    transport: Transport = Field(default_factory=Transport)
    transfer: list[Transfer] = []
    tcp_server: TcpServer = Field(default_factory=TcpServer)
    membership: Membership = Field(default_factory=Membership)
    streams: list[Stream] = []
    drain: Drain = Field(default_factory=Drain)
    handover: Handover = Field(default_factory=Handover)
    holds: Holds = Field(default_factory=Holds)
    metrics: Metrics = Field(default_factory=Metrics)
    # Pages by operation and outcome, named as PageStatus is: {"get": {"ok": 10, "absent": 2}};
    # and single counters beside them: {"get_remote": 4, "stale_retries": 0, "bytes_got": 4096}.
    operations: dict[str, dict[str, int] | int] = {}
    namespaces: list[Namespace] = []


class LocatedOwner(Part):
    """An owner of a digest, in ring order."""

    node_id: str = ""
    is_self: bool = False
    suspect: bool = False
    answered: bool = True
    error: str = ""  # why it did not answer


class LocatedHolder(Part):
    """A record of a digest: who has the page, and where."""

    node_id: str = ""
    incarnation: Hex64 = ""
    is_self: bool = False
    suspect: bool = False
    resident: bool = True
    length: int = 0
    offset: int = 0
    generation: int = 0  # 48 bits: exact in any JSON reader


class Located(Part):
    """What the cluster knows of one key."""

    schema_version: int = SCHEMA_VERSION
    namespace: str = ""
    namespace_id: Hex128 = ""
    epoch: int = 0
    digest: Hex128 = ""
    owners: list[LocatedOwner] = []
    holders: list[LocatedHolder] = []
    cached: bool = False  # the location is in this node's location cache
