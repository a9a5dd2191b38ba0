"""All kinds of findings, by subject. docs/health.md is generated from them."""

from __future__ import annotations

from peercached.health.kind import Kind

FAR_NUMBERS = Kind(
    "far_numbers",
    "warning",
    "A member sent numbers far above all that this node knows. The node ignored them.",
)
OUT_OF_CLUSTER = Kind(
    "out_of_cluster",
    "error",
    "The cluster does not accept this node, for example because another process has its node id.",
)
NOT_IN_A_VIEW = Kind(
    "not_in_a_view", "warning", "This node has joined no view yet. It serves only its own pages."
)
MASTER_UNREACHABLE = Kind(
    "master_unreachable",
    "warning",
    "This node cannot reach a master or a head. The other masters do its work.",
)
NOT_A_MEMBER_YET = Kind(
    "not_a_member_yet",
    "warning",
    "The masters hold this node back. It takes no sets until they accept it.",
)
NO_HEAD = Kind(
    "no_head", "error", "This node reaches no head and knows no view. It serves only its own pages."
)
NO_MASTER = Kind("no_master", "error", "This node reaches no master. It keeps the last view.")
ETCD_UNREACHABLE = Kind(
    "etcd_unreachable",
    "error",
    "etcd does not keep a lease for this node. The node keeps its last view, if it has one.",
)
ETCD_LOST_MEMBERS = Kind(
    "etcd_lost_members",
    "warning",
    "etcd came back without some members, for example from an old backup.",
)
MEMBER_MUTE = Kind(
    "member_mute",
    "warning",
    "A node sends heartbeats and answers no call. It is kept out of the cluster until it answers.",
)
NODE_LOST = Kind(
    "node_lost",
    "warning",
    "A node left the cluster without a goodbye and is not back. Its pages are misses.",
)
DRAINING = Kind("draining", "warning", "This node drains, or has left the cluster after a drain.")

FAULTS_INJECTED = Kind(
    "faults_injected", "warning", "The key `faults` makes transfers fail on purpose."
)
PEER_SUSPECT = Kind(
    "peer_suspect",
    "warning",
    "A peer does not answer. Its pages are misses here until it answers a ping.",
)
CORRUPT_HERE = Kind(
    "corrupt_here",
    "error",
    "Pages in the pool of this node lost their bytes. The node dropped them.",
)
CORRUPT_FROM_PEERS = Kind(
    "corrupt_from_peers",
    "warning",
    "Pages from peers arrived with a wrong checksum. The node read them again, or missed them.",
)
WORKER_STUCK = Kind(
    "worker_stuck", "warning", "A worker gave up requests while the daemon still copies for them."
)
RECORDS_WAIT = Kind(
    "records_wait", "warning", "An owner does not take the records of this node.", ("peer_suspect",)
)
SET_WITHOUT_OWNERS = Kind(
    "set_without_owners",
    "info",
    "Pages were set while no owner could be reached. Their records follow.",
)
DIRECTORY_FULL = Kind(
    "directory_full", "warning", "The directory shard of this node refused records."
)
RECORDS_REFUSED = Kind("records_refused", "warning", "Owners had no room for records of this node.")
REQUESTS_DROPPED = Kind(
    "requests_dropped", "warning", "The control plane did not keep up with the data plane."
)

REMOVALS_NOT_KEPT = Kind(
    "removals_not_kept",
    "error",
    "Removals cannot be written to `state_dir`. A restart may bring those pages back.",
)
REMOVAL_INCOMPLETE = Kind(
    "removal_incomplete",
    "warning",
    "A node has not confirmed a removal. Those pages cannot be set yet.",
)
REMOVAL_ELSEWHERE = Kind(
    "removal_elsewhere",
    "warning",
    "Another node has been removing pages for a long time. Those pages cannot be set yet.",
)
PAGES_HELD_BACK = Kind(
    "pages_held_back",
    "warning",
    "Pages of an earlier start wait until enough nodes confirm that nobody removed them.",
)
MISSED_REMOVALS_NOT_KEPT = Kind(
    "missed_removals_not_kept",
    "error",
    "Removals that other nodes missed cannot be written to `state_dir`.",
)

POOL_EMPTIED = Kind(
    "pool_emptied", "info", "The pages in `pool_file` could not be used. The pool began empty."
)
POOL_FILE_DAMAGED = Kind(
    "pool_file_damaged",
    "warning",
    "Pages in `pool_file` were damaged while no daemon ran. The node dropped them.",
)
CLEARS_NOT_KEPT = Kind(
    "clears_not_kept",
    "error",
    "Cleared namespaces cannot be written to `state_dir`. A restart may bring cleared pages back.",
)

DISK_READ_ONLY = Kind(
    "disk_read_only",
    "error",
    "The disk tier cannot write. Evicted pages are lost; stored pages are still read.",
)
DISK_STALLED = Kind("disk_stalled", "error", "The disk does not answer. Pages on it are misses.")
DISK_TOO_SLOW = Kind(
    "disk_too_slow",
    "info",
    "Workers set pages faster than the disk takes them. Some pages are in memory only.",
)
DISK_PAGES_TOO_LARGE = Kind(
    "disk_pages_too_large",
    "warning",
    "Pages are too large for the disk tier. They are in memory only.",
)
DISK_DAMAGED = Kind(
    "disk_damaged", "warning", "Pages on the disk were torn or damaged. The node dropped them."
)
DISK_EMPTIED = Kind(
    "disk_emptied", "info", "The contents of the disk tier could not be used. It began empty."
)
DISK_FOREIGN_FILES = Kind(
    "disk_foreign_files",
    "warning",
    "Segment files of another daemon or version, or destroyed ones, were deleted.",
)
DISK_QUOTA = Kind("disk_quota", "info", "A namespace used up its share of the disk.")

RDMA_UNUSED = Kind("rdma_unused", "warning", "This host has RDMA devices, but the daemon uses TCP.")
RAIL_DOWN = Kind("rail_down", "warning", "A rail is down.")
NO_RAIL = Kind(
    "no_rail",
    "error",
    'No rail is up, and `protocol = "rdma"` forbids TCP. Pages of peers are misses.',
)
NO_RAIL_BUT_TCP = Kind("no_rail_but_tcp", "warning", "No rail is up. Pages of peers come over TCP.")
PEERS_BY_TCP = Kind(
    "peers_by_tcp",
    "warning",
    "No rail reaches some peers that have RDMA. Their pages come over TCP.",
)
READS_BY_TCP = Kind(
    "reads_by_tcp",
    "info",
    "Some reads went over TCP because no rail reached the peer. That is over now.",
)
RAIL_DOUBTED = Kind(
    "rail_doubted",
    "warning",
    "A rail does not reach some peers. Other rails, or TCP, bring their pages.",
)

CERTIFICATE_EXPIRED = Kind(
    "certificate_expired",
    "error",
    "The TLS certificate of this node, or of its authority, has expired.",
)
CERTIFICATE_EXPIRES = Kind(
    "certificate_expires",
    "warning",
    "The TLS certificate of this node, or of its authority, expires soon.",
)
TLS_FILES_UNUSABLE = Kind(
    "tls_files_unusable",
    "warning",
    "The TLS files changed and cannot be loaded. The old ones stay in force.",
)

SECRET_FILE_UNUSABLE = Kind(
    "secret_file_unusable",
    "warning",
    "The cluster secret's file changed and cannot be used. The old secret stays in force.",
)
PRIVATE_FILE_OPEN = Kind(
    "private_file_open",
    "warning",
    "Other users can read the cluster secret or the TLS key through the file's group.",
)
SECRET_REPLACED = Kind(
    "secret_replaced",
    "info",
    "One cluster secret replaces another. This node accepts both.",
)
UNAUTHENTICATED = Kind(
    "unauthenticated",
    "warning",
    "Peers are not authenticated. Anybody who reaches `meta_port` can join.",
)
HANDSHAKES_REFUSED = Kind(
    "handshakes_refused",
    "warning",
    "Callers did not know the cluster secret, or lacked the key of the node they claimed to be.",
)
CERTIFICATES_MISFIT = Kind(
    "certificates_misfit",
    "warning",
    "Callers had certificates of other nodes than they claimed to be.",
)
WORKERS_FORBIDDEN = Kind(
    "workers_forbidden",
    "warning",
    "Users outside `worker_users` and `worker_groups` tried to attach.",
)
WORKERS_CROWD = Kind(
    "workers_crowd",
    "warning",
    "A process or user opened too many connections to the worker socket, or sent nothing on them.",
)
WORKER_REQUESTS_REFUSED = Kind(
    "worker_requests_refused",
    "warning",
    "There was no memory for so many large requests at a time.",
)
DATA_PORT_STRANGERS = Kind(
    "data_port_strangers", "info", "Connections to `data_port` had no valid token."
)
TLS_FAILED = Kind("tls_failed", "warning", "Connections to `meta_port` ended in the TLS handshake.")
META_PORT_STRANGERS = Kind(
    "meta_port_strangers",
    "warning",
    "Connections to `meta_port` did not authenticate in time, or were too many.",
)
RDMA_IN_CLEAR = Kind("rdma_in_clear", "info", "Pages over RDMA are not encrypted.")
PEERS_IN_CLEAR = Kind(
    "peers_in_clear",
    "warning",
    "Some peers do not encrypt pages, because `tls_data_port` is off there.",
)

TRACING_OFF = Kind(
    "tracing_off",
    "warning",
    "`otlp_endpoint` is set, but the packages that export traces are not installed.",
)
TRACES_LOST = Kind(
    "traces_lost",
    "warning",
    "The OpenTelemetry collector does not answer, or not quickly enough. Calls do not wait for it.",
)

RELOAD_FAILED = Kind(
    "reload_failed", "warning", "The new configuration is not valid. The old one stays in force."
)
RESTART_NEEDED = Kind(
    "restart_needed", "info", "Some keys of the new configuration need a restart."
)

SECTIONS: dict[str, tuple[Kind, ...]] = {
    "Membership": (
        FAR_NUMBERS,
        OUT_OF_CLUSTER,
        NOT_IN_A_VIEW,
        MASTER_UNREACHABLE,
        NOT_A_MEMBER_YET,
        NO_HEAD,
        NO_MASTER,
        ETCD_UNREACHABLE,
        ETCD_LOST_MEMBERS,
        MEMBER_MUTE,
        NODE_LOST,
        DRAINING,
    ),
    "Peers and directory": (
        FAULTS_INJECTED,
        PEER_SUSPECT,
        CORRUPT_HERE,
        CORRUPT_FROM_PEERS,
        WORKER_STUCK,
        RECORDS_WAIT,
        SET_WITHOUT_OWNERS,
        DIRECTORY_FULL,
        RECORDS_REFUSED,
        REQUESTS_DROPPED,
    ),
    "Removals": (
        REMOVALS_NOT_KEPT,
        REMOVAL_INCOMPLETE,
        REMOVAL_ELSEWHERE,
        PAGES_HELD_BACK,
        MISSED_REMOVALS_NOT_KEPT,
    ),
    "Restarts": (
        POOL_EMPTIED,
        POOL_FILE_DAMAGED,
        CLEARS_NOT_KEPT,
    ),
    "Disk tier": (
        DISK_READ_ONLY,
        DISK_STALLED,
        DISK_TOO_SLOW,
        DISK_PAGES_TOO_LARGE,
        DISK_DAMAGED,
        DISK_EMPTIED,
        DISK_FOREIGN_FILES,
        DISK_QUOTA,
    ),
    "RDMA": (
        RDMA_UNUSED,
        RAIL_DOWN,
        NO_RAIL,
        NO_RAIL_BUT_TCP,
        PEERS_BY_TCP,
        READS_BY_TCP,
        RAIL_DOUBTED,
    ),
    "TLS": (
        CERTIFICATE_EXPIRED,
        CERTIFICATE_EXPIRES,
        TLS_FILES_UNUSABLE,
        SECRET_FILE_UNUSABLE,
        PRIVATE_FILE_OPEN,
        SECRET_REPLACED,
    ),
    "Security": (
        UNAUTHENTICATED,
        HANDSHAKES_REFUSED,
        CERTIFICATES_MISFIT,
        WORKERS_FORBIDDEN,
        WORKERS_CROWD,
        WORKER_REQUESTS_REFUSED,
        DATA_PORT_STRANGERS,
        TLS_FAILED,
        META_PORT_STRANGERS,
        RDMA_IN_CLEAR,
        PEERS_IN_CLEAR,
    ),
    "Tracing": (
        TRACING_OFF,
        TRACES_LOST,
    ),
    "Configuration": (
        RELOAD_FAILED,
        RESTART_NEEDED,
    ),
}
KINDS = {kind.code: kind for kinds in SECTIONS.values() for kind in kinds}
