"""All kinds of findings, by subject. docs/health.md is generated from them."""

from __future__ import annotations

from peercached.health.kind import Section

_MEMBERSHIP = Section("Membership")
FAR_NUMBERS = _MEMBERSHIP.warning(
    "far_numbers",
    "A member sent numbers far above all numbers that this node knows. The node ignored them.",
)
OUT_OF_CLUSTER = _MEMBERSHIP.error(
    "out_of_cluster",
    "The cluster refuses this node, for example because another process has its node id.",
)
NOT_IN_A_VIEW = _MEMBERSHIP.warning(
    "not_in_a_view", "This node has joined no view yet. It serves only its own pages."
)
ALONE = _MEMBERSHIP.info(
    "alone",
    "`discovery_addr` names only this host, and no other node has joined. For a cluster of one "
    "node, this is right.",
)
MASTER_UNREACHABLE = _MEMBERSHIP.warning(
    "master_unreachable",
    "A master or a head refuses this node or does not answer. Other masters do its work.",
)
NOT_A_MEMBER_YET = _MEMBERSHIP.warning(
    "not_a_member_yet", "The masters make this node wait. It takes no sets until they accept it."
)
NO_HEAD = _MEMBERSHIP.error(
    "no_head",
    "No head answers or accepts this node, and it knows no view. It serves only its own pages.",
)
NO_MASTER = _MEMBERSHIP.error(
    "no_master", "No master answers or accepts this node. It keeps its last view."
)
ETCD_UNREACHABLE = _MEMBERSHIP.error(
    "etcd_unreachable",
    "This node has no lease in etcd. It keeps its last view, if it has one.",
)
ETCD_LOST_MEMBERS = _MEMBERSHIP.warning(
    "etcd_lost_members", "etcd lost some members, for example because of an old backup."
)
MEMBER_MUTE = _MEMBERSHIP.warning(
    "member_mute",
    "A node sends heartbeats but answers no call. It cannot join until it answers.",
)
NODE_LOST = _MEMBERSHIP.warning(
    "node_lost", "A node vanished without a goodbye and is not back. Its pages are misses."
)
DRAINING = _MEMBERSHIP.warning(
    "draining", "This node drains, or has left the cluster after a drain."
)
STOPPING = _MEMBERSHIP.warning("stopping", "This daemon was told to stop and has not ended yet.")

_PEERS = Section("Peers and directory")
EVENTS_OF_OWN_PAGES = _PEERS.warning(
    "events_of_own_pages",
    "This node does not have the records of all nodes, so its events for routers tell of its own "
    "pages only.",
)
FAULTS_INJECTED = _PEERS.warning(
    "faults_injected", "The key `faults` makes transfers fail on purpose."
)
PEER_SUSPECT = _PEERS.warning(
    "peer_suspect",
    "A peer does not answer, or its pages do not come. Its pages are misses here until it answers "
    "a ping, and until its data port answers if its pages did not come.",
)
CORRUPT_HERE = _PEERS.error(
    "corrupt_here", "Pages in this node's pool had a wrong checksum. The node dropped them."
)
CORRUPT_FROM_PEERS = _PEERS.warning(
    "corrupt_from_peers",
    "Pages from peers had a wrong checksum. They were read again or became misses.",
)
OTHER_BYTES = _PEERS.warning(
    "other_bytes",
    "A node's workers set other bytes than this node's under the same keys, and those of other "
    "nodes agree. Its engine may have other weights, scales or kernels.",
)
GPU_LOST = _PEERS.error(
    "gpu_lost",
    "Copies of a GPU failed. Gets and sets with its memory fail until the daemon restarts.",
)
GPU_SLOW = _PEERS.warning(
    "gpu_slow", "The driver of GPUs could not pin memory of this node, so copies are slow."
)
WORKER_STUCK = _PEERS.warning(
    "worker_stuck", "A worker gave up requests while the daemon still copies for them."
)
RECORDS_WAIT = _PEERS.warning(
    "records_wait", "A member does not have this node's records.", "peer_suspect"
)
SET_WITHOUT_OWNERS = _PEERS.info(
    "set_without_owners", "Sets were answered before every owner had their records. These follow."
)
DIRECTORY_FULL = _PEERS.warning(
    "directory_full", "Records of other nodes did not fit on this node."
)
REQUESTS_DROPPED = _PEERS.warning(
    "requests_dropped", "The control plane did not keep up with the data plane."
)

_REMOVALS = Section("Removals")
REMOVALS_NOT_KEPT = _REMOVALS.error(
    "removals_not_kept",
    "Removals cannot be written to `state_dir`. A restart may bring the pages back.",
)
REMOVAL_INCOMPLETE = _REMOVALS.warning(
    "removal_incomplete", "A node has not confirmed a removal. The pages cannot be set yet."
)
REMOVAL_ELSEWHERE = _REMOVALS.warning(
    "removal_elsewhere",
    "Another node's removal takes long. The pages cannot be set yet.",
)
PAGES_HELD_BACK = _REMOVALS.warning(
    "pages_held_back",
    "Pages of an earlier start wait until enough nodes confirm that nobody removed them.",
)
MISSED_REMOVALS_NOT_KEPT = _REMOVALS.error(
    "missed_removals_not_kept", "Removals that other nodes missed cannot be written to `state_dir`."
)

_RESTARTS = Section("Restarts")
POOL_EMPTIED = _RESTARTS.info(
    "pool_emptied", "The pages in `pool_file` could not be used. The pool started empty."
)
POOL_FILE_DAMAGED = _RESTARTS.warning(
    "pool_file_damaged",
    "Pages in `pool_file` were damaged while no daemon ran. The node dropped them.",
)
CLEARS_NOT_KEPT = _RESTARTS.error(
    "clears_not_kept",
    "Namespace clears cannot be written to `state_dir`. A restart may bring the pages back.",
)

_POOL = Section("Pool")
POOL_GROWS = _POOL.info(
    "pool_grows", "The memory of a large pool is still being prepared after a start."
)
POOL_SMALL = _POOL.warning(
    "pool_small", "The pool is smaller than `pool_size`, because its memory could not be had."
)
EVICTED_BESIDE_ROOM = _POOL.warning(
    "evicted_beside_room",
    "This node evicted pages that no other node has, although a peer had free memory.",
)

_COLD = Section("Object store")
COLD_STORE_FAILS = _COLD.error(
    "cold_store_fails",
    "The store of `cold_store` fails: its pages are misses, or it gets none. Removals wait for it.",
)
COLD_OTHER_STORE = _COLD.error(
    "cold_other_store",
    "The store of `cold_store` is not the one that this node or another one knows. Its pages are "
    "misses, and removals wait.",
)
COLD_OTHER_SECRET = _COLD.info(
    "cold_other_secret",
    "A cluster with another secret uses the store, too. Neither finds the pages of the other.",
)
COLD_REMOVALS_UNKNOWN = _COLD.error(
    "cold_removals_unknown",
    "The removals in the store of `cold_store` cannot be read. None of its pages are used.",
)
COLD_STORE_FULL = _COLD.info(
    "cold_store_full", "The store of `cold_store` has `cold_size` bytes. Nodes write no more."
)
COLD_SWEEP_FAILS = _COLD.warning(
    "cold_sweep_fails",
    "The node that sweeps the store of `cold_store` fails. Old objects stay there.",
)
COLD_INDEX_FULL = _COLD.warning(
    "cold_index_full", "The store has more objects or pages than a node remembers."
)
COLD_OTHER_KEY = _COLD.warning(
    "cold_other_key",
    "The store has objects that are sealed with another key than that of `cold_key_file`, or not "
    "sealed.",
)

_DISK = Section("Disk tier")
DISK_READ_ONLY = _DISK.error(
    "disk_read_only",
    "The disk tier cannot write. Evicted pages are lost; stored pages are still read.",
)
DISK_STALLED = _DISK.error("disk_stalled", "The disk does not answer. Pages on it are misses.")
DISK_TOO_SLOW = _DISK.info(
    "disk_too_slow",
    "Pages are set faster than the disk takes them. Some are in memory only.",
)
DISK_PAGES_TOO_LARGE = _DISK.warning(
    "disk_pages_too_large", "Pages are too large for the disk tier. They are in memory only."
)
DISK_DAMAGED = _DISK.warning(
    "disk_damaged", "Pages on the disk were torn or damaged. The node dropped them."
)
DISK_EMPTIED = _DISK.info(
    "disk_emptied", "The pages on the disk could not be used. The disk tier started empty."
)
DISK_FOREIGN_FILES = _DISK.warning(
    "disk_foreign_files",
    "Segment files were deleted: damaged, or of another daemon or version.",
)
DISK_QUOTA = _DISK.info("disk_quota", "A namespace used up its share of the disk.")

_RDMA = Section("RDMA")
RDMA_UNUSED = _RDMA.warning("rdma_unused", "This host has RDMA devices, but the daemon uses TCP.")
RAIL_DOWN = _RDMA.warning("rail_down", "A rail is down.")
NO_RAIL = _RDMA.error(
    "no_rail", 'No rail is up, and `protocol = "rdma"` forbids TCP. Pages of peers are misses.'
)
NO_RAIL_BUT_TCP = _RDMA.warning("no_rail_but_tcp", "No rail is up. Pages of peers come over TCP.")
PEERS_BY_TCP = _RDMA.warning(
    "peers_by_tcp", "No rail reaches some peers that have RDMA. Their pages come over TCP."
)
READS_BY_TCP = _RDMA.info(
    "reads_by_tcp", "Earlier reads went over TCP because no rail reached the peer."
)
RAIL_DOUBTED = _RDMA.warning(
    "rail_doubted", "A rail does not reach some peers. Their pages come by other rails or TCP."
)

_TLS = Section("TLS")
CERTIFICATE_EXPIRED = _TLS.error(
    "certificate_expired", "The TLS certificate of this node or its authority has expired."
)
CERTIFICATE_EXPIRES = _TLS.warning(
    "certificate_expires", "The TLS certificate of this node or its authority expires soon."
)
TLS_FILES_UNUSABLE = _TLS.warning(
    "tls_files_unusable", "The TLS files changed and cannot be loaded. The old ones stay in use."
)
TLS_PARTIAL = _TLS.warning(
    "tls_partial", "TLS is being switched on: this node or a peer still uses plain text."
)
SECRET_FILE_UNUSABLE = _TLS.warning(
    "secret_file_unusable",
    "The file of the cluster secret changed and cannot be used. The old secret stays in use.",
)
PRIVATE_FILE_OPEN = _TLS.warning(
    "private_file_open",
    "Other users in the file's group can read the cluster secret, the TLS key or the key of the "
    "object store.",
)
SECRET_REPLACED = _TLS.info(
    "secret_replaced", "The cluster secret is being replaced. This node accepts both."
)

_SECURITY = Section("Security")
UNAUTHENTICATED = _SECURITY.warning(
    "unauthenticated", "Peers are not authenticated. Everybody who reaches `meta_port` can join."
)
HANDSHAKES_REFUSED = _SECURITY.warning(
    "handshakes_refused",
    "Callers had a wrong cluster secret, or claimed the node id of another node. The sentence has "
    "the address and the reason of the last one, the log those of all.",
)
SETTINGS_DIFFER = _SECURITY.warning(
    "settings_differ",
    "A node was refused because it has another value of a shared setting.",
)
CERTIFICATES_MISFIT = _SECURITY.warning(
    "certificates_misfit", "Callers had certificates of other nodes."
)
WORKERS_FORBIDDEN = _SECURITY.warning(
    "workers_forbidden", "Users outside `worker_users` and `worker_groups` tried to attach."
)
WORKERS_CROWD = _SECURITY.warning(
    "workers_crowd",
    "A process or user opened too many connections to the worker socket, or sent nothing.",
)
WORKER_REQUESTS_REFUSED = _SECURITY.warning(
    "worker_requests_refused", "Too many large requests at once: there was no memory for them."
)
DATA_PORT_STRANGERS = _SECURITY.info(
    "data_port_strangers", "Connections to `data_port` had no valid token."
)
TLS_FAILED = _SECURITY.warning(
    "tls_failed",
    "Connections to `meta_port` failed in the TLS handshake. Connections that sent nothing do not "
    "count.",
)
META_PORT_STRANGERS = _SECURITY.warning(
    "meta_port_strangers",
    "Connections to `meta_port` did not authenticate in time, or were too many.",
)
RDMA_IN_CLEAR = _SECURITY.info("rdma_in_clear", "Pages over RDMA are not encrypted.")
PEERS_IN_CLEAR = _SECURITY.warning(
    "peers_in_clear", "Some peers send pages unencrypted, because `tls_data_port` is off there."
)

_TRACING = Section("Tracing")
TRACING_OFF = _TRACING.warning(
    "tracing_off", "`otlp_endpoint` is set, but a package for tracing is missing."
)
TRACES_LOST = _TRACING.warning(
    "traces_lost",
    "The OpenTelemetry collector does not answer, or is too slow. Calls do not wait for it.",
)

_CONFIGURATION = Section("Configuration")
RELOAD_FAILED = _CONFIGURATION.warning(
    "reload_failed", "The new configuration is not valid. The old one stays in use."
)
RESTART_NEEDED = _CONFIGURATION.info("restart_needed", "Some changed keys need a restart.")

SECTIONS = (
    _MEMBERSHIP,
    _PEERS,
    _REMOVALS,
    _RESTARTS,
    _POOL,
    _DISK,
    _COLD,
    _RDMA,
    _TLS,
    _SECURITY,
    _TRACING,
    _CONFIGURATION,
)
KINDS = {kind.code: kind for section in SECTIONS for kind in section.kinds}
