"""The status document: the full state of one daemon for operators, in one message.

The daemon fills it, `peercachectl` prints it, and tests assert on it. Every field has a default,
and unknown fields are kept. So a daemon and a `peercachectl` of different versions agree on all
fields that both know. `schema_version` rises only when a field changes its meaning.

Incarnations and generations are 64-bit, so they are sent as 16 hexadecimal digits. JSON readers
that keep numbers in doubles, such as `jq`, would round them.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

SCHEMA_VERSION = 1


def _hexadecimal(value: Any) -> Any:
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:016x}"
    return value


def _hex_bytes(value: Any) -> Any:
    return value.hex() if isinstance(value, bytes) else value


# A 64-bit number as 16 hexadecimal digits; accepts an int too.
Hex64 = Annotated[str, BeforeValidator(_hexadecimal)]
# A digest or namespace id as 32 hexadecimal digits; accepts bytes too.
Hex128 = Annotated[str, BeforeValidator(_hex_bytes)]


class Part(BaseModel):
    model_config = ConfigDict(extra="allow")


class Document(Part):
    """A whole document, as a call returns it."""

    schema_version: int = SCHEMA_VERSION


class Node(Part):
    """This daemon."""

    id: str = ""
    role: str = "full"  # or "memory": it serves no workers
    incarnation: Hex64 = ""
    version: str = ""
    host: str = ""
    meta_port: int = 0
    data_port: int = 0
    metrics_host: str = ""
    metrics_port: int = 0  # 0: no metrics port
    socket_path: str = ""  # empty: it serves no workers
    pid: int = 0
    uptime_s: float = 0.0
    starting: bool = False  # it does not serve workers yet
    stopping: bool = False  # it was told to stop


class Health(Part):
    """One problem, with what an operator can do about it."""

    code: str = ""  # its kind (docs/health.md); empty from an older daemon
    severity: Literal["error", "warning", "info"] = "warning"
    sentence: str
    remedy: str = ""


class Security(Part):
    """Refused access to the meta port, and TLS state; counters since the start of the daemon."""

    cluster_secret: bool = False
    # Name of the secret that this node proves; "none": it has none (config/cluster_secret.py).
    secret: str = ""
    secrets_also_accepted: list[str] = Field(default_factory=list)  # their names
    older_secret: list[str] = Field(default_factory=list)  # callers that proved another one last
    tls: bool = False
    tls_mode: str = ""  # the key; empty without TLS files
    without_tls: list[str] = Field(default_factory=list)  # callers that have no TLS
    called_plain: list[str] = Field(default_factory=list)  # peers called without TLS
    tls_not_after: str = ""  # expiry of this node's certificate or its CA's, whichever is earlier
    tls_seconds_left: int = 0
    tls_reloads: int = 0
    data_sealed: bool = False  # data_port uses TLS
    refused_handshakes: int = 0  # the caller did not have the cluster secret
    misfit_certificates: int = 0  # the certificate names another node than the caller claims
    unauthenticated_calls: int = 0  # calls without a session
    meta_connections: int = 0
    meta_connections_unproven: int = 0
    meta_shut_unproven: int = 0  # not authenticated in time
    meta_shut_crowd: int = 0  # too many from one address
    meta_ended_silent: int = 0  # sent something, but no call; with TLS: failed handshakes


class KvEvents(Part):
    """Events of pages for routers; counters since the start of the daemon."""

    host: str = ""
    port: int = 0  # 0: this node tells no events. Replays are at the next port
    auth: str = ""  # "curve" (ZMQ's CURVE keys) or "none"
    public_key: str = ""  # the server key of both ports; empty without CURVE
    of: str = ""  # "all": pages of all nodes; "own": only of this node
    pages: int = 0  # in the picture, told or not
    told: int = 0  # pages that subscribers know; a page counts at each node
    subscribers: int = 0  # connections that have subscribed
    next_number: Hex64 = ""  # the number of the next batch
    batches: int = 0
    bytes: int = 0
    events: int = 0  # one for each hash
    stored: int = 0
    removed: int = 0
    cleared: int = 0  # AllBlocksCleared: a node lost all pages of a namespace
    by_digest: int = 0  # pages told by their digest, because nobody gave a hash
    names_asked: int = 0  # pages for which other nodes were asked
    unnamed: int = 0  # of these, no node knew the hash
    replays: int = 0
    snapshots: int = 0
    replays_refused: int = 0
    replays_stalled: int = 0  # the subscriber took nothing for too long
    followers: int = 0  # calls of Router.Events (gRPC) now
    followers_too_slow: int = 0  # of these, ended because events were gone before they were read
    handshakes_refused: int = 0  # without a key of the cluster, mostly
    subscribers_ended: int = 0  # connections ended for too many subscriptions
    shut_crowd: int = 0  # times that a port had too many connections


class PoolClass(Part):
    """One size class of the pool."""

    stride_bytes: int = 0
    slots: int = 0
    used: int = 0
    spans: int = 0
    evictions: int = 0
    pinned: int = 0  # slots being read or set now


class Pool(Part):
    """The published pool; counters since the start of the daemon."""

    capacity_bytes: int = 0
    ready_bytes: int = 0  # of them; less while a large pool is being prepared
    why_small: str = ""  # why the others cannot be had
    used_bytes: int = 0
    payload_bytes: int = 0
    keys: int = 0
    adopted_keys: int = 0  # of them, came from other nodes or the object store
    adopted_bytes: int = 0
    hinted_keys: int = 0  # brought by hints and not used since
    hinted_bytes: int = 0
    retained_keys: int = 0  # by hints
    retained_bytes: int = 0
    replica_keys: int = 0  # of them, copies of pages that other nodes keep
    replica_bytes: int = 0
    reserved: int = 0
    pins: int = 0
    sets: int = 0
    evictions: int = 0
    removals: int = 0
    given: int = 0  # to other nodes: neither evicted nor removed
    lost_bytes: int = 0  # of evicted pages that no other pool was known to have
    span_moves: int = 0
    no_space: int = 0
    classes: list[PoolClass] = []


class Quota(Part):
    """A namespace's use of the pool and its limit; counters since its last clear."""

    id: Hex128 = ""  # of the namespace
    namespace: str = ""
    bytes: int = 0  # slots, including their headers
    quota_bytes: int = 0
    evictions: int = 0  # its own pages, evicted to stay within the quota
    refused: int = 0  # sets refused because evicting its own pages could not make room
    disk_bytes: int = 0  # space on disk, including pages queued for writing
    disk_quota_bytes: int = 0  # 0: no limit
    disk_skipped: int = 0  # not written because of this quota; since the start of the daemon


class Dropped(Part):
    """Pages of a pool file that will not be served again, by reason."""

    damaged_headers: int = 0
    damaged_payloads: int = 0
    unfinished: int = 0
    cleared: int = 0
    removed: int = 0
    duplicates: int = 0


class Gpu(Part):
    """A GPU that the daemon may use."""

    id: str = ""  # its UUID, 32 hexadecimal digits
    name: str = ""
    regions: int = 0  # allocations that workers share
    region_bytes: int = 0
    copied_bytes: int = 0  # counter, both directions
    why_lost: str = ""  # why its copies failed; empty if they did not
    why_slow: str = ""  # why the driver could not pin the pool; empty if it did


class Recovery(Part):
    """The pages recovered from `pool_file` at the start of the daemon."""

    file: str = ""
    why_fresh: str = ""  # why everything was dropped; empty if it was not
    pages: int = 0
    bytes: int = 0
    seconds: float = 0.0
    dropped: Dropped = Field(default_factory=Dropped)
    damaged_spans: int = 0


class Removals(Part):
    """Unfinished removals, and their journal in `state_dir` (docs/consistency.md)."""

    running: int = 0  # pages being removed by any node; they cannot be set
    running_s: float = 0.0  # age of the oldest
    unsure: int = 0  # pages removed by this node that some process may still have
    unsure_s: float = 0.0  # age of the oldest
    missing: dict[str, str] = Field(default_factory=dict)  # node id -> why it has not answered
    silent: list[str] = Field(default_factory=list)  # nodes that vanished without leaving
    owes: bool = False  # this node may have missed removals, and serves no page of before
    # Nodes that may know removals of pages from an earlier start. Until they answer, those pages
    # are not served.
    held_back_for: list[str] = Field(default_factory=list)
    store_problem: str = ""  # why the state of other nodes cannot be stored
    last: int = 0  # journal position of the newest removal
    floor: int = 0  # after a restart, copies set before this position are not served
    entries: int = 0
    waiting: int = 0  # removed but not in the journal: a restart may bring them back
    problem: str = ""  # why the journal cannot be written


class Cold(Part):
    """The object store; counters since the start of the daemon. An empty `store`: none."""

    store: str = ""
    marker: str = ""  # of the store that this node remembers
    sealed: bool = False  # objects are written and read under the key of cold_key_file
    pages: int = 0  # that this node knows there
    objects: int = 0
    bytes: int = 0  # of these pages
    stored_bytes: int = 0  # of all objects that are known
    size_bytes: int = 0  # the key cold_size
    removed_pages: int = 0  # that the store has records of
    generation: int = 0  # of the store
    crowded_namespaces: int = 0  # had too many removed pages: their older objects are void
    sweeper: str = ""  # the node that sweeps, and a number of its process
    is_sweeper: bool = False  # it is this node
    sweep_problem: str = ""  # why the last sweep of this node ended early
    deleted_objects: int = 0  # by this node
    deleted_object_bytes: int = 0
    deleted_records: int = 0  # of removals
    compactions: int = 0
    rewritten_objects: int = 0
    # The store's bytes, and after an hour this node's requests; by cold_prices.
    monthly_cost: dict[str, float] = {}
    requests: dict[str, int] = {}  # by kind: put, get, list, delete
    errors: dict[str, int] = {}  # by kind
    bytes_read: int = 0
    bytes_written: int = 0
    read_pages: int = 0  # that came into the pool
    read_page_bytes: int = 0
    ahead_pages: int = 0  # of these: nobody had asked for them, their neighbours were wanted
    ahead_used_pages: int = 0  # of these: used since
    written_pages: int = 0
    written_objects: int = 0
    void_pages: int = 0  # read, but removed meanwhile
    late_pages: int = 0  # read, but not committed in time
    corrupt_pages: int = 0
    vanished_pages: int = 0  # their object was gone
    crowded_pages: int = 0  # not read: too many requests were under way
    mangled_objects: int = 0
    foreign_objects: int = 0
    other_key_objects: int = 0  # whose seal is not that of cold_key_file
    left_out_objects: int = 0  # no room in the index
    failure: str = ""  # why the last request failed


class Disk(Part):
    """The disk tier; counters since the start of the daemon. An empty state: no disk tier."""

    state: Literal["", "on", "read_only", "stalled"] = ""
    why: str = ""  # why it is not "on"
    path: str = ""
    io: str = ""  # I/O method
    size_bytes: int = 0
    used_bytes: int = 0
    segments: int = 0
    pages: int = 0
    payload_bytes: int = 0
    index_bytes: int = 0
    queued_pages: int = 0  # set, but not written yet
    queued_bytes: int = 0
    pages_written: int = 0
    payload_bytes_written: int = 0
    disk_bytes_written: int = 0  # with carried pages and padding; divided by
    pages_carried: int = 0  # payload_bytes_written: write amplification
    pages_evicted: int = 0
    segments_evicted: int = 0
    skipped_full: int = 0  # not written because the queue was full
    skipped_off: int = 0
    skipped_old: int = 0
    skipped_large: int = 0
    skipped_quota: int = 0  # not written because of the namespace's disk quota; see quotas
    page_bytes_max: int = 0  # larger pages are not written (skipped_large)
    write_errors: int = 0
    removed: int = 0  # removed or cleared pages
    pages_read: int = 0
    payload_bytes_read: int = 0
    disk_bytes_read: int = 0  # with headers, padding and neighbours
    disk_reads: int = 0  # one may bring neighbouring pages
    copied_bytes_read: int = 0  # copied from the tier's buffers; each page once
    reads_absent: int = 0
    reads_corrupt: int = 0
    reads_failed: int = 0
    reads_late: int = 0
    recovery_ms: int = 0
    recovered_pages: int = 0
    recovered_segments: int = 0
    recovery_walked: int = 0  # segments without a usable footer, read page by page
    recovery_corrupt: int = 0
    recovery_rejected: int = 0  # segment files of another daemon or version
    recovery_removed: int = 0
    recovery_emptied: str = ""  # why no page was usable
    promoted: int = 0  # copied from disk to the pool for local workers, peers and `exists`
    promoted_bytes: int = 0
    warmed: int = 0  # the part of `promoted` that was for `exists`
    warm_queued: int = 0
    warm_dropped: int = 0  # the queue of pages to warm was full
    promotes_not_now: int = 0
    promotes_late: int = 0
    promotes_failed: int = 0
    promotes_absent: int = 0
    promotes_asked: int = 0  # calls to peers
    promotes_served: int = 0  # calls from peers
    promotes_refused: int = 0


class Shard(Part):
    """This node's shard of the directory; counters since the start of the daemon."""

    entries: int = 0
    bytes: int = 0
    dead_entries: int = 0
    capacity_entries: int = 0
    added: int = 0
    changed: int = 0
    withdrawn: int = 0
    old: int = 0
    full: int = 0
    bad: int = 0  # rows refused because they are not valid records
    lookups: int = 0
    hits: int = 0


class Copies(Part):
    """Other nodes' records. They answer most lookups without a message."""

    holders: int = 0  # nodes with records that answer now
    records: int = 0
    records_max: int = 0
    bytes: int = 0
    begun: int = 0  # scans of a node that were begun
    no_room: int = 0  # nodes with records that did not fit
    only_owned: bool = False  # no room for all: it keeps those that it owns


class Locations(Part):
    """The location cache: records of other nodes' pages, kept from earlier lookups."""

    entries_max: int = 0
    hits: int = 0
    misses: int = 0


class Ipc(Part):
    """The server for workers; counters since the start of the daemon."""

    connections: int = 0
    accepted: int = 0
    refused: int = 0
    bad_frames: int = 0
    forbidden: int = 0  # refused because of user or group
    crowded: int = 0  # refused because one process or user has too many
    late_hellos: int = 0
    requests_refused: int = 0  # no memory for a large request
    regions_lost: int = 0
    sets: int = 0
    gets: int = 0
    exists: int = 0
    others: int = 0
    given_up: int = 0  # the worker stopped waiting before the answer


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
    idle_s: float = 0.0  # since its last request, or since it attached
    given_up: int = 0  # the worker stopped waiting before the answer
    stuck: int = 0  # the part of `given_up` that still accesses the worker's memory


class DoubtedPath(Part):
    """A peer that this rail reads no pages from now."""

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
    why: str = ""  # why it is down
    registered_bytes: int = 0
    channels: int = 0  # to peers; this node reads their pages
    responders: int = 0  # for peers; they read this node's pages
    pages: int = 0  # read here; counters since the start of the daemon
    bytes: int = 0
    errors: int = 0
    doubted: list[DoubtedPath] = []  # until a test channel shows that it works

    @property
    def name(self) -> str:
        return f"{self.device}:{self.port}"


class Transport(Part):
    """The transport chosen at start, and why."""

    protocol: str = ""  # "rdma" or "tcp"
    why: str = ""
    rails: list[Rail] = []
    fallback_reads: int = 0  # over TCP from RDMA peers that no rail reached
    fallback_peers: int = 0  # RDMA peers that were last read over TCP
    # As reader and as holder, since the start of the daemon.
    channels_connected: int = 0
    channels_refused: int = 0
    channels_accepted: int = 0
    accepts_refused: int = 0


class Transfer(Part):
    """READs from one peer's pool; counters since this peer incarnation was first seen."""

    node_id: str = ""
    incarnation: Hex64 = ""
    engine: str = ""  # "rdma" or "tcp": the transport common to this node and the peer
    transport: str = ""  # the one in use now
    channels: int = 0
    pages: int = 0
    bytes: int = 0
    errors: int = 0
    deadlines: int = 0
    corrupt: int = 0  # header correct, but the checksum of the bytes wrong


class TcpServer(Part):
    """Pages that peers read from this node over TCP; counters since the start of the daemon."""

    channels: int = 0
    accepted: int = 0
    refused: int = 0
    bad_hellos: int = 0
    bad_frames: int = 0
    crowded: int = 0  # refused because one address or peer has too many
    unauthorised: int = 0  # bad hellos without a handshake's token
    late_hellos: int = 0
    kernel_sealed: int = 0  # channels that the kernel encrypts pages of
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
    transports: list[str] = []  # that it has beside TCP
    protocol: str = ""  # how its pages are read from here: "rdma" or "tcp"; empty for this node
    suspect: bool = False
    state: str = "alive"  # or "leaving"
    is_self: bool = False
    ring_share: float = 0.0  # fraction of the digests with this node as first owner
    # Pages that workers here set while it had the same keys, and those with other bytes. Of those
    # that this node had, one in 17 is compared.
    keys_compared: int = 0
    keys_differed: int = 0


class DepartedNode(Part):
    """A node that left the view within the last day and is not back."""

    node_id: str = ""
    incarnation: Hex64 = ""
    host: str = ""
    at: float = 0.0  # seconds since 1970
    age_s: float = 0.0
    lost: bool = False  # it went without a goodbye
    why: str = ""


class Master(Part):
    """One of the nodes that maintain the membership."""

    node_id: str = ""
    endpoint: str = ""
    is_self: bool = False
    answers: bool = False
    problem: str = ""


class Membership(Part):
    """The view this daemon works with. In view 0 it knows only itself."""

    view_number: int = 0
    view_mark: str = ""  # nodes with equal number and mark have the same view
    heads: list[str] = []  # as configured
    kind: str = ""  # "embedded" or "etcd"
    is_master: bool = False
    masters: list[Master] = []  # in order
    silence_s: dict[str, float] = {}  # only on a master: seconds since each member was heard
    heartbeats_sent: int = 0
    signs_counted: int = 0  # other messages of members that count as heartbeats
    members: list[Member] = []


class Follower(Part):
    """A member, and what it has of this node's records."""

    node_id: str = ""
    state: str = ""  # directory/followers.py
    behind: int = 0  # changes that it is not known to have


class Drain(Part):
    """A drain of this node (`peercachectl drain`)."""

    state: str = "no"  # "handing over", "drained", "leaving", "left"
    seconds: float = 0.0  # since the drain began
    pages: int = 0  # pages in the pool when it began
    bytes: int = 0
    budget_bytes: int = 0
    handed_pages: int = 0
    handed_bytes: int = 0
    stored_pages: int = 0  # written to the object store
    stored_bytes: int = 0
    complete: bool = False  # all pages within the budget are at peers or in the object store
    outcome: str = ""  # result of the hand-over, in words
    refused_pages: int = 0  # pages of refused sets, since the start of the daemon


class TakenFrom(Part):
    """Pages received from one node, or here already when it offered them; counters since the start
    of the daemon."""

    node_id: str = ""
    pages: int = 0
    bytes: int = 0


class Handover(Part):
    """Pages received from nodes that drain or are full, and replicas; counters since the start of
    the daemon."""

    adopted: int = 0
    adopted_bytes: int = 0
    adopt_refused: int = 0
    replicated: int = 0
    replicated_bytes: int = 0
    replicate_refused: int = 0  # hot pages without room among the replicas


class Push(Part):
    """Pages that this node gave to others as soon as they were set; counters since the start of
    the daemon."""

    pages: int = 0
    bytes: int = 0
    kept: int = 0  # pages that no node took


class Spill(Part):
    """Pages that this node gave to others before it evicted them; counters since the start of the
    daemon."""

    pages: int = 0
    bytes: int = 0
    duplicates: int = 0  # pages that another node had already
    refused: int = 0  # pages that a peer did not take


class Holds(Part):
    """Pages that `exists` has pinned for a limited time."""

    pages: int = 0
    bytes: int = 0
    refused: int = 0  # counter since the start of the daemon


class PinnedNamespace(Part):
    """A namespace with pinned pages."""

    id: Hex128 = ""
    pages: int = 0
    bytes: int = 0


class Pins(Part):
    """Pages of the pool that an operator or a worker has pinned."""

    pages: int = 0
    bytes: int = 0
    bytes_max: int = 0  # by pin_share
    refused: int = 0  # pages; counter since the start of the daemon
    namespaces: list[PinnedNamespace] = []  # those with the most pinned bytes


class HintCount(Part):
    """Actions of hints of one kind that ended in one way."""

    action: str = ""
    outcome: str = ""
    count: int = 0


class HintRefusal(Part):
    """An action that was refused or clipped."""

    at_s: float = 0.0  # Unix time
    action_type: str = ""
    namespace_id: str = ""
    outcome: str = ""
    why: str = ""


class HintNamespace(Part):
    """A namespace that sent hints in the last minute."""

    id: Hex128 = ""
    tenant: str = ""  # its pattern of namespace_quotas; empty: it is a tenant of its own
    part_bytes: int = 0  # of bytes_max
    left_bytes: int = 0  # that its hints may bring now


class Hints(Part):
    """Hints of routers and engines; counters since the start of the daemon."""

    answered: list[HintCount] = []  # what the senders were told
    ended: list[HintCount] = []  # what came of actions that waited in the queue
    waiting: int = 0  # in the queue now
    malformed: int = 0  # envelopes
    pages: dict[str, int] = {}  # by action
    bytes: dict[str, int] = {}  # that were brought, by action
    bytes_max: int = 0  # by hint_share
    unused_pages: int = 0  # brought by hints and not used since
    unused_bytes: int = 0
    retained_pages: int = 0
    retained_bytes: int = 0
    namespaces: list[HintNamespace] = []  # those heard last, in front
    refusals: list[HintRefusal] = []  # the last ones, the newest at the end


class Routers(Part):
    """The gRPC service for routers; counters since the start of the daemon."""

    port: int = 0  # 0: it is off
    connections: int = 0
    unauthenticated: int = 0  # calls without the token, at POST /api/v1/hints, too
    malformed: int = 0  # calls
    shut: int = 0  # connections that made no call with the token


class Metrics(Part):
    """Load of the HTTP server for metrics; counters since the start of the daemon."""

    connections: int = 0
    requests: int = 0
    refused: int = 0  # connections over the limit
    displaced: int = 0  # connections closed to make room
    bad: int = 0  # malformed requests
    cut: int = 0  # clients that were too slow
    failed: int = 0  # errors in our handlers


class Tracing(Part):
    """Export of traced gets to an OpenTelemetry collector; counters since the start."""

    endpoint: str = ""  # the key otlp_endpoint; empty: off
    exported_spans: int = 0
    failed_spans: int = 0  # that the collector did not take
    dropped_calls: int = 0  # traced gets dropped for lack of room
    error: str = ""  # why the last spans were not taken, or why nothing is exported


class Control(Part):
    """The control plane's part in the workers' requests."""

    malformed_calls: int = 0
    unauthenticated_calls: int = 0
    refused_handshakes: int = 0
    events_dropped: int = 0  # the queue from the data plane was full


class Operations(Part):
    """The workers' requests, in pages; counters since the start of the daemon."""

    set: dict[str, int] = {}  # by status name
    get: dict[str, int] = {}
    get_local: int = 0  # hits in the pool
    get_disk: int = 0
    get_remote: int = 0  # in a peer's pool
    get_peer_disk: int = 0
    get_store: int = 0  # in the object store
    stale_retries: int = 0
    corrupt_local: int = 0
    corrupt_remote: int = 0
    set_held: int = 0  # set again although here already
    unpublished: int = 0  # batches that not every owner had when `set` answered
    keys_in_copies: int = 0
    lookups_asked: int = 0
    lookup_keys_asked: int = 0
    lookup_frames: int = 0  # to owners, on data channels
    lookups_passed_on: int = 0  # that had to ask all owners
    lookups_answered: int = 0  # of peers
    publish_frames: int = 0
    publishes_answered: int = 0
    used_elsewhere: int = 0  # pages here that peers said they use
    # Of workers that compute pages where loading them takes longer.
    cut_pages: int = 0  # found, and computed instead of loaded
    given_up_pages: int = 0  # their load took far longer than forecast
    cut_us: int = 0  # that the cut loads would have taken, by the forecasts
    computed_us: int = 0  # to compute them
    bytes_set: int = 0
    bytes_got: int = 0
    control: Control = Field(default_factory=Control)

    @property
    def hits(self) -> dict[str, int]:
        """Pages got, by tier."""
        return {
            "pool": self.get_local,
            "disk": self.get_disk,
            "peer": self.get_remote,
            "peer_disk": self.get_peer_disk,
            "store": self.get_store,
        }


class Demand(Part):
    """Keys that workers looked for, and where they were; counters since the start of the daemon.

    A worker looks for a key when it asks `exists` for it. A worker that never calls `exists` looks
    for a key when it gets it. `exists` finds a key only if it finds all keys before it.
    """

    asked: int = 0
    found: dict[str, int] = {}  # by tier: pool, disk, peer, peer_disk, store
    # Further keys that a pool of "2x" and "4x" this size would have kept.
    evicted: dict[str, int] = {}
    # Of workers that say how many tokens a key stands for.
    tokens_asked: int = 0
    tokens_found: int = 0

    @property
    def found_all(self) -> int:
        return sum(self.found.values())

    @property
    def hit_rate(self) -> float | None:
        """None: nobody looked for a key."""
        return self.found_all / self.asked if self.asked else None

    def hit_rate_if(self, pool: str) -> float | None:
        """The hit rate with a pool of "2x" or "4x" the size."""
        return (self.found_all + self.evicted.get(pool, 0)) / self.asked if self.asked else None


class Namespace(Part):
    """A namespace that workers here have opened."""

    id: Hex128 = ""  # as in metrics, which have no names
    name: str = ""
    epoch: int = 0
    pool_pages: int = 0
    pool_bytes: int = 0  # slots, with headers
    disk_bytes: int = 0
    quota_bytes: int = 0  # 0: none
    # Pages that workers here set while a node had the same keys, and those with other bytes.
    keys_compared: int = 0
    keys_differed: int = 0
    demand: Demand = Field(default_factory=Demand)


class Epoch(Part):
    """A namespace that has been cleared: only pages of this epoch are found."""

    id: Hex128 = ""
    epoch: int = 0


class Status(Document):
    """The whole document."""

    node: Node = Field(default_factory=Node)
    health: list[Health] = []
    security: Security = Field(default_factory=Security)
    pool: Pool = Field(default_factory=Pool)
    quotas: list[Quota] = []
    recovery: Recovery = Field(default_factory=Recovery)
    removals: Removals = Field(default_factory=Removals)
    kv_events: KvEvents = Field(default_factory=KvEvents)
    disk: Disk = Field(default_factory=Disk)
    cold: Cold = Field(default_factory=Cold)
    shard: Shard = Field(default_factory=Shard)
    copies: Copies = Field(default_factory=Copies)
    locations: Locations = Field(default_factory=Locations)
    ipc: Ipc = Field(default_factory=Ipc)
    gpus: list[Gpu] = []  # with the key gpu
    workers: list[Worker] = []
    transport: Transport = Field(default_factory=Transport)
    transfer: list[Transfer] = []
    tcp_server: TcpServer = Field(default_factory=TcpServer)
    membership: Membership = Field(default_factory=Membership)
    departed: list[DepartedNode] = []  # latest first
    followers: list[Follower] = []
    drain: Drain = Field(default_factory=Drain)
    handover: Handover = Field(default_factory=Handover)
    taken_from: list[TakenFrom] = Field(default_factory=list)
    push: Push = Field(default_factory=Push)
    spill: Spill = Field(default_factory=Spill)
    holds: Holds = Field(default_factory=Holds)
    pins: Pins = Field(default_factory=Pins)
    hints: Hints = Field(default_factory=Hints)
    routers: Routers = Field(default_factory=Routers)
    metrics: Metrics = Field(default_factory=Metrics)
    tracing: Tracing = Field(default_factory=Tracing)
    demand: Demand = Field(default_factory=Demand)
    operations: Operations = Field(default_factory=Operations)
    namespaces: list[Namespace] = []  # those with the most memory
    namespaces_open: int = 0
    epochs: list[Epoch] = []


class LocatedOwner(Part):
    """An owner of a digest, in ring order."""

    node_id: str = ""
    is_self: bool = False
    suspect: bool = False
    answered: bool = True
    final: bool = False  # the page has no other holders than it says
    error: str = ""  # why it did not answer


class LocatedHolder(Part):
    """A record of a digest: one holder of the page, and the page's place there."""

    node_id: str = ""
    incarnation: Hex64 = ""
    is_self: bool = False
    suspect: bool = False
    resident: bool = True
    length: int = 0
    offset: int = 0
    generation: int = 0  # 48 bits, so every JSON reader keeps it exact


class LocatedObject(Part):
    """A page in the object store."""

    store: str = ""
    object: str = ""  # below the prefix of the store
    offset: int = 0
    length: int = 0
    read_cost: float | None = None  # of the request that reads it, by cold_prices


class Located(Document):
    """The owners and holders of one key."""

    namespace: str = ""
    namespace_id: Hex128 = ""
    epoch: int = 0
    digest: Hex128 = ""
    owners: list[LocatedOwner] = []
    holders: list[LocatedHolder] = []
    stored: LocatedObject | None = None  # this node knows the page there
    cached: bool = False  # this node's location cache has it
    suspects: list[str] = []  # members that do not answer, so nobody knows what they have

    def silent(self) -> list[str]:
        """The nodes that may have the page, or know who has it, and have not said for sure. The
        page is absent only if there are none."""
        may_know = set[str]()
        if not any(owner.final for owner in self.owners):
            may_know.update(self.suspects, (owner.node_id for owner in self.owners))
        holders = {holder.node_id for holder in self.holders if holder.suspect}
        return sorted(may_know | holders)
