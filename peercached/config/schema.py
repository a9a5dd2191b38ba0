"""All keys of the daemon. docs/configuration.md, the options and the checks are generated from it.

A key exists only if we can say when to change it. Everything else is a constant in the code that
uses it. A name ends in its unit if the type does not show it.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, Strict

from peercached.config import quotas, values

Size = Annotated[int, BeforeValidator(values.parse_size)]
Flag = Annotated[bool, Strict()]
Count = Annotated[int, BeforeValidator(values.no_bool)]
Port = Annotated[int, BeforeValidator(values.no_bool)]
Seconds = Annotated[float, BeforeValidator(values.no_bool), AfterValidator(values.finite)]
Heads = Annotated[list[str], BeforeValidator(values.split_list), AfterValidator(values.check_heads)]
Mode = Annotated[str, BeforeValidator(values.parse_mode)]
NodeId = Annotated[str, AfterValidator(values.check_node_id)]
Host = Annotated[str, AfterValidator(values.check_host)]
Listen = Annotated[str, AfterValidator(values.check_listen)]
Url = Annotated[str, AfterValidator(values.check_url)]
Account = Annotated[str, BeforeValidator(values.account)]
Accounts = Annotated[
    list[str], BeforeValidator(values.split_list), AfterValidator(values.check_accounts)
]
Quotas = Annotated[
    list[str], BeforeValidator(values.split_list), AfterValidator(quotas.check_quotas)
]
Faults = Annotated[str, AfterValidator(values.check_faults)]
Devices = Annotated[
    list[str], BeforeValidator(values.split_list), AfterValidator(values.check_devices)
]
Mtu = Annotated[int, BeforeValidator(values.no_bool), AfterValidator(values.check_mtu)]
PartitionKey = Annotated[int, BeforeValidator(values.parse_hexadecimal)]


def _key(
    default: Any,
    section: str,
    what: str,
    when: str,
    *,
    unit: str = "",
    default_text: str = "",
    live: bool = False,  # changes with a reload, without a restart
    shared: bool = False,  # a node with another value may not join (shared.py)
    **bounds: Any,
) -> Any:
    extra: dict[str, Any] = {
        "live": live,
        "shared": shared,
        "section": section,
        "when": when,
        "unit": unit,
        "default_text": default_text,
    }
    return Field(default=default, description=what, json_schema_extra=extra, **bounds)


_IDENTITY = "Identity and addresses"
_CLUSTER = "Cluster"
_SECURITY = "Security"
_WORKERS = "Workers"
_POOL = "Pool"
_DISK = "Disk tier"
_DIRECTORY = "Directory"
_TRANSFER = "Transfer and deadlines"
_RDMA = "RDMA"
_MONITORING = "Monitoring"
_SERVICE = "Service and logs"
_TESTS = "Tests"


class Config(BaseModel):
    """The effective configuration. Immutable; make one with `peercached.config.load`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    node_id: NodeId = _key(
        "",
        _IDENTITY,
        "Name of this node in the cluster, unique and the same at every start.",
        "Several daemons on one host, or host names that change or repeat.",
        default_text="the host name",
    )
    role: Literal["full", "memory"] = _key(
        "full",
        _IDENTITY,
        "`full` serves the workers of this host. `memory` serves none: the node lends its pool and "
        "its disk to the others, whose pages move here before they are evicted.",
        "A host without GPUs, or one that sets few pages, has memory to spare: `memory`, with "
        "`discovery_addr`.",
    )
    host: Host = _key(
        "auto",
        _IDENTITY,
        "Address under which the peers reach this node, or a name of this host; both ports are "
        "bound to it. A name is resolved once, at the start, and peers are told the address. "
        "`auto` is 127.0.0.1 without `discovery_addr`, else the local address that routes to its "
        "first head that is elsewhere.",
        "The host has several networks and the cache should use another one.",
    )
    meta_port: Port = _key(
        31998,
        _IDENTITY,
        "TCP port for the peers' calls (gRPC): membership and directory.",
        "The port is taken. The heads' ports in `discovery_addr` must follow.",
        ge=1,
        le=65535,
    )
    data_port: Port = _key(
        31999,
        _IDENTITY,
        "TCP port from which peers read pages. 0 takes any free port; peers are told.",
        "The port is taken, or a firewall allows another one.",
        ge=0,
        le=65535,
    )

    discovery_addr: Heads = _key(
        [],
        _CLUSTER,
        "The cluster's heads as `host:port` (a list, or a string with commas); the port is the "
        "head's `meta_port`. A name stands for all its addresses (8 at most), and they may change. "
        "Empty: this node is on its own.",
        "Always, to form a cluster: the same list on every node, two or three of the hosts.",
    )
    membership: Literal["embedded", "etcd"] = _key(
        "embedded",
        _CLUSTER,
        "Who knows which nodes there are: the nodes themselves (`discovery_addr`), or an etcd "
        "service (`etcd_endpoints`). The same on every node.",
        "The site runs etcd anyway and wants one place that says who is there.",
    )
    etcd_endpoints: Heads = _key(
        [],
        _CLUSTER,
        "The members of etcd as `host:port`. With the `tls_` keys, etcd is reached over TLS with "
        "the same files.",
        'With `membership = "etcd"`.',
    )
    etcd_prefix: str = _key(
        "/peercached",
        _CLUSTER,
        "Beginning of all keys of this cluster in etcd.",
        "Several clusters share one etcd. The same on every node of one.",
        min_length=1,
    )
    max_masters: Count = _key(
        3,
        _CLUSTER,
        "Nodes that keep the membership: the heads first, then others by node id, which replace "
        "those that die. The same on every node.",
        "1 makes the least traffic, and a master's death takes longer to get over; more than 5 "
        "only cost.",
        ge=1,
        le=16,
    )
    heartbeat_interval_s: Seconds = _key(
        1.0,
        _CLUSTER,
        "How often this node tells the masters that it lives.",
        "Thousands of nodes: longer makes the masters' work less. The same on every node.",
        unit="s",
        ge=0.05,
        le=60.0,
    )
    member_ttl_s: Seconds = _key(
        5.0,
        _CLUSTER,
        "A node that was silent for this long, and that others cannot reach either, is out of the "
        "view and its pages are misses. At least three heartbeat intervals. The same on every "
        "node.",
        "Shorter to notice dead nodes sooner; longer on networks with outages of seconds.",
        unit="s",
        ge=0.2,
        le=600.0,
    )
    state_dir: str = _key(
        "",
        _CLUSTER,
        "Folder of the files that this node needs after a restart. They record cleared namespaces, "
        "removed pages, the members that it knew, the events of the last day, and its own key. "
        "With the members it finds the cluster while all heads are down.",
        "Always where it can be kept; a folder of its own for each daemon is not needed.",
        default_text="`/var/lib/peercached` when that folder may be written, else none",
    )

    cluster_secret_file: str = _key(
        "",
        _SECURITY,
        "File with the secret that all nodes of the cluster share, at least 16 bytes, readable by "
        "the daemon's user only. `peercachectl secret` makes it, and replaces the secret in it, or "
        "gives a running cluster its first one. New contents are used within seconds. Empty: peers "
        "are not authenticated, and `status` says so.",
        "Always, unless no untrusted host can reach the network.",
    )
    tls_ca: str = _key(
        "",
        _SECURITY,
        "PEM file of the authority (or, while one replaces another, of both) that signed the "
        "peers' certificates. TLS covers the peers' calls (`meta_port`), the calls to etcd and, "
        "but for `tls_data_port`, the pages over TCP. `tls_ca`, `tls_cert` and `tls_key`, or none "
        "of them. New files are taken up within seconds, without a restart.",
        "The network between the nodes is not trusted.",
    )
    tls_cert: str = _key(
        "",
        _SECURITY,
        "PEM file of this node's certificate chain, valid for its `host`; `peercachectl certs` "
        "makes one.",
        "With `tls_ca`.",
    )
    tls_key: str = _key("", _SECURITY, "PEM file of this node's private key.", "With `tls_ca`.")
    tls_mode: Literal["off", "accept", "prefer", "require"] = _key(
        "require",
        _SECURITY,
        "How far TLS is switched on; without `tls_ca` it is off. `require`: TLS only. `prefer`: "
        "`meta_port` speaks TLS only, and peers without TLS are still called. `accept`: "
        "`meta_port` is still plain, and peers are called with TLS or without. `off`: the files "
        "are not used.",
        "To switch TLS on in a running cluster, step by step (docs/security.md). `status` tells "
        "the next step.",
        live=True,
    )
    tls_data_port: Flag = _key(
        True,
        _SECURITY,
        "With `tls_ca`: pages, lookups and records at `data_port` are sealed, too. Pages over RDMA "
        "are not.",
        "Off where the fabric between the nodes is trusted, and what sealing costs is not "
        "(docs/performance.md). Each node says what its own port speaks.",
    )

    socket_path: str = _key(
        "",
        _WORKERS,
        "Unix socket for the workers of this host, 107 bytes at most.",
        "Several daemons on one host, or containers that share another folder.",
        default_text="`/run/peercached/peercached.sock` when that folder may be written, else "
        "`$XDG_RUNTIME_DIR/peercached/peercached.sock`",
    )
    socket_mode: Mode = _key(
        "0660",
        _WORKERS,
        "File mode of `socket_path` (octal, in quotes): who may be a worker.",
        "Workers run as users that cannot join `socket_group`.",
    )
    socket_group: Account = _key(
        "",
        _WORKERS,
        "Group that `socket_path` is given to (name or number): the workers' users are in it, and "
        "so is the daemon's user.",
        "Workers have another group than that of the packages.",
        default_text="`peercached-workers` if the daemon's user is in such a group, else the "
        "daemon's own group",
    )
    worker_users: Accounts = _key(
        [],
        _WORKERS,
        "Users (names or numbers) that may be workers, whatever `socket_mode` lets connect; beside "
        "root and the daemon's own. With `worker_groups` empty too: all that can connect.",
        "The socket must be open to many (`0666` in a shared folder), the cache must not.",
    )
    worker_groups: Accounts = _key(
        [],
        _WORKERS,
        "Groups whose members may be workers, beside `worker_users`.",
        "As `worker_users`.",
    )
    admin_socket: str = _key(
        "",
        _WORKERS,
        "Unix socket for `peercachectl`, mode 0600, 107 bytes at most. Its folder is open to the "
        "daemon's user only (0700); the daemon makes it. Never the folder of `socket_path`, which "
        "engines' containers mount.",
        "The daemon may not make the folder beside that of `socket_path`.",
        default_text="in the folder of `socket_path` with `-admin` after its name: "
        "`/run/peercached-admin/peercached.sock`",
    )
    workers_max: Count = _key(
        64,
        _WORKERS,
        "Worker processes that may be attached at once; a further one is refused.",
        "More ranks than this on one host.",
        ge=1,
        le=4096,
    )

    pool_size: Size = _key(
        1 << 30,
        _POOL,
        "Memory for published pages, taken and touched at start. With a unit: `512MiB`, `8gb` "
        "(powers of 1024), or plain bytes.",
        "Always in production: as much host memory as the engines leave.",
        unit="bytes",
        ge=1 << 20,
        le=1 << 46,
    )
    huge_pages: Flag = _key(
        False,
        _POOL,
        "Take the pool from reserved 2 MiB huge pages. Too few of them is an error at start.",
        "Huge pages are reserved (`vm.nr_hugepages`): large pools copy faster.",
    )
    namespace_quotas: Quotas = _key(
        [],
        _POOL,
        "What a namespace may hold of the pool at most, as `pattern=share`: `tenant-a/*=0.25`; "
        "with `pattern=share:disk_share` also of `disk_size`: `tenant-a/*=0.25:0.5`. `*` stands "
        "for anything, slashes too; the first pattern that fits counts. A namespace at its quota "
        "makes room among its own pages; below it, it competes for the pool like any other. At "
        "its quota of the disk, pages that are set are not written there, until older ones have "
        "left it. A lower quota that is reloaded evicts with the namespace's next set.",
        "Several models or tenants share a node, and one of them must not push the others out.",
        live=True,
    )
    pool_file: str = _key(
        "",
        _POOL,
        "File that the pool lives in, on tmpfs or hugetlbfs (there it has huge pages), made with "
        "mode 0600. Its pages are verified and served again after a restart of the daemon; under "
        "another `pool_size`, node id, cluster secret or format the file is emptied, and `status` "
        "says so. Empty: the pool ends with the process.",
        "Restarts and upgrades should keep the cache. One file for each daemon; needs `state_dir`.",
    )
    spill_bytes_per_s: Size = _key(
        4 << 30,
        _POOL,
        "Budget for pages that move, before the pool evicts them, to full nodes whose coldest "
        "pages are older. Moves to nodes with free memory are not charged. 0: no page moves. Then "
        "a page that the pool evicts is gone, unless it is on the disk.",
        "Less if moves take the network from reads. More if some nodes set pages faster than this "
        "while the others are full of older ones (prefill and decode nodes, memory-only nodes).",
        unit="bytes/s",
        live=True,
        ge=0,
        le=1 << 40,
    )
    write_policy: Literal["local", "remote", "both"] = _key(
        "local",
        _POOL,
        "Where the pages of this node's workers are kept. `local`: in its own pool, until they "
        "spill. `remote`: they move to another node at once, the one with most room. `both`: they "
        "are copied there, too. A page that no node takes stays.",
        "`remote` to give the memory of a GPU host back to the engines, with memory-only nodes; "
        "`both` if no page may be lost with one node.",
    )
    replica_share: Annotated[float, BeforeValidator(values.no_bool)] = _key(
        0.1,
        _POOL,
        "Share of the pool for replicas: pages that workers of this node often read from another "
        "node (3 times within 10 minutes) are kept here as well, and read without the network. "
        "0: none are.",
        "0 if the network is as quick as memory; more if a few prompts are most of the reads.",
        live=True,
        ge=0.0,
        le=1.0,
    )
    pin_share: Annotated[float, BeforeValidator(values.no_bool)] = _key(
        0.125,
        _POOL,
        "Share of the pool that pins may keep from eviction (`peercachectl pin`, and `pin` of the "
        "client). One namespace may have half of it, and half of its quota. 0: nobody may pin.",
        "More if many agents pause and come back to long prompts; 0 if workers that you do not "
        "trust share the pool.",
        live=True,
        ge=0.0,
        le=0.5,
    )
    copy_threads: Count = _key(
        0,
        _POOL,
        "Threads that copy a large batch into or out of the pool, including the thread that serves "
        "the call. 0: half of the processors, but at least 1 and at most 4.",
        "Fewer if the engine needs the processors; more if copies stay below memory bandwidth.",
        ge=0,
        le=64,
    )

    disk_enabled: Flag = _key(
        False,
        _DISK,
        "Keep pages on a local disk as well: those that the pool evicts can still be read, by "
        "every node, and a restart finds them again.",
        "The host has a local disk (NVMe) to spare: it holds many times what fits in memory.",
    )
    disk_path: str = _key(
        "",
        _DISK,
        "Folder for the pages, made at first start if the folder above it exists. It belongs to "
        "this `node_id` of this cluster: another daemon's is refused.",
        "With `disk_enabled`: a folder on a local file system of its own, best without other load.",
    )
    disk_size: Size = _key(
        16 << 30,
        _DISK,
        "Room for all files in `disk_path` together. The oldest pages give way, recently read ones "
        "last. It also bounds how large a page on the disk may be: 4 MiB with 1 GiB, 64 MiB from "
        "16 GiB on.",
        "With `disk_enabled`: as much of the disk as the pages may take, with some left free.",
        unit="bytes",
        ge=16 << 20,
        le=1 << 50,
    )
    disk_sync: Literal["never", "segment", "batch"] = _key(
        "segment",
        _DISK,
        "When pages are forced to the medium. With each value, a daemon that is killed loses only "
        "what it had not written yet. Power cuts: `segment` loses the file that was being filled, "
        "`batch` nothing that was reported as written, `never` what the kernel had not written "
        "back.",
        "`batch` on disks whose flushes are cheap (power-loss protection); `never` where the pages "
        "need not outlive the machine's power.",
    )

    vnodes: Count = _key(
        160,
        _DIRECTORY,
        "Positions of each node on the ring.",
        "More spread the directory more evenly, but make rings of thousands of nodes large.",
        shared=True,
        ge=1,
        le=4096,
    )
    directory_replicas: Count = _key(
        2,
        _DIRECTORY,
        "Owners that keep each record (the record, not the page).",
        "1 to save memory where a dead owner's misses do not matter; 3 to lose two owners at once.",
        shared=True,
        ge=1,
        le=8,
    )
    directory_capacity: Count = _key(
        32_000_000,
        _DIRECTORY,
        "Room for the records that this node owns, 48 bytes each; memory grows only as used. If "
        "they do not fit, it keeps no records of some nodes, and `status` says so.",
        "The cluster's pages x `directory_replicas` / owners exceed it. Up to four nodes are all "
        "owners. A larger cluster has four owners, or one for each eight nodes if that is more.",
        unit="records",
        ge=1024,
        le=1_000_000_000,
    )
    directory_copies: Count = _key(
        4_000_000,
        _DIRECTORY,
        "Further room, for the records that this node does not own. With the records of all nodes, "
        "128 others at most, it finds pages without asking. If they do not fit, or with 0, it "
        "keeps only what it owns.",
        "Raise it where `peercached_copies_without_room_total` grows and memory is free.",
        unit="records",
        ge=0,
        le=1_000_000_000,
    )
    location_cache_entries: Count = _key(
        262_144,
        _DIRECTORY,
        "Locations of other nodes' pages kept from `exists` for the `get` that follows.",
        "Lookups of small pages run so far ahead that `get` asks the directory again.",
        unit="records",
        ge=1024,
        le=100_000_000,
    )

    verify: Literal["checksum", "header"] = _key(
        "checksum",
        _TRANSFER,
        "The check of each page that a peer sends: of its header and its payload's checksum, or of "
        "the header only. Both catch reused slots.",
        "`header` only where the checksum's measured cost hurts and the network is trusted.",
    )
    max_channels_per_peer: Count = _key(
        8,
        _TRANSFER,
        "Connections per peer and rail, at most: RDMA queue pairs, or TCP connections to the "
        "peer's data port. They are made when they are needed.",
        "Fewer with hundreds of peers; more on links that one stream cannot fill.",
        unit="connections",
        ge=1,
        le=64,
    )
    rpc_timeout_ms: Count = _key(
        1000,
        _TRANSFER,
        "Longest wait for one call to a peer; a worker's own deadline ends it sooner. A peer that "
        "does not answer in time is suspect. A lookup asks another owner long before.",
        "Longer on slow or distant networks, where healthy peers become suspect.",
        unit="ms",
        ge=10,
        le=60_000,
    )
    publish_timeout_ms: Count = _key(
        1000,
        _TRANSFER,
        "The longest time that `set` waits for the owners of its pages to take the records. Then "
        "it answers, and an owner that did not take them is suspect.",
        "Shorter when `set` must never hold the engine up; longer on slow networks.",
        unit="ms",
        live=True,
        ge=1,
        le=60_000,
    )

    protocol: Literal["auto", "rdma", "tcp"] = _key(
        "auto",
        _RDMA,
        "How pages travel between nodes. `auto` takes RDMA if this host has a usable port, else "
        "TCP, and says in the log and in `status` which and why. `rdma` refuses to start without "
        "one. A peer without RDMA is read over TCP.",
        "`rdma` in production with RDMA, so that a broken port is noticed at start; `tcp` where "
        "the devices are for others only.",
    )
    device_names: Devices = _key(
        [],
        _RDMA,
        "The RDMA devices to use, in order of preference: names as `ibv_devices` has them, each "
        "with `:port` if it is not port 1 (`mlx5_0`, `mlx5_1:2`). Several are several rails. "
        "Empty: the ports that are active at the start, the fastest of them, nearest to the pool "
        "first. A named port that is down then is taken when it comes up.",
        "Some of the devices belong to storage or to the engines' own traffic.",
    )
    rdma_gid_index: Count = _key(
        -1,
        _RDMA,
        "Index of the GID to use, in every port's table. -1 chooses by type and address: RoCE v2, "
        "that of `host` first.",
        "Only if `peercachectl devices` shows that the wrong GID was chosen: indices change when "
        "addresses come and go.",
        ge=-1,
        le=255,
    )
    rdma_mtu: Mtu = _key(
        0,
        _RDMA,
        "Payload of one packet: 256, 512, 1024, 2048 or 4096. 0 takes the port's active MTU; two "
        "peers use the smaller of theirs.",
        "A switch on the way drops packets that the ports would send.",
        unit="bytes",
        ge=0,
        le=4096,
    )
    rdma_service_level: Count = _key(
        0,
        _RDMA,
        "Service level of the packets: on InfiniBand the subnet manager maps it to virtual lanes, "
        "on RoCE with a VLAN it is the priority.",
        "The fabric has a lane for storage: name its level, on every node.",
        ge=0,
        le=15,
    )
    rdma_traffic_class: Count = _key(
        0,
        _RDMA,
        "Traffic class of the packets; on RoCE the upper six bits are the DSCP (DSCP 26 is 104).",
        "The switches have a lossless queue for RDMA: name its class, on every node.",
        ge=0,
        le=255,
    )
    rdma_hop_limit: Count = _key(
        64,
        _RDMA,
        "Routers that a packet may pass.",
        "1 to keep RDMA within one subnet; more on fabrics of many stages.",
        unit="hops",
        ge=1,
        le=255,
    )
    rdma_pkey: PartitionKey = _key(
        0xFFFF,
        _RDMA,
        "InfiniBand partition key, found by value in each port's table; decimal or `0x...`.",
        "The subnet manager puts these nodes into a partition of their own.",
        default_text="`0xffff`, the default partition",
        ge=1,
        le=0xFFFF,
    )
    rdma_timeout: Count = _key(
        16,
        _RDMA,
        "Time until a packet without an acknowledgement is sent again: 4.096 us x 2^n. 14 is "
        "67 ms, 16 is 268 ms, 18 is 1.1 s.",
        "Longer on congested or distant fabrics whose channels break (`retries exceeded` in the "
        "log); shorter to notice a dead peer sooner.",
        ge=1,
        le=31,
    )
    rdma_retry_count: Count = _key(
        6,
        _RDMA,
        "How often a packet is sent again before the channel breaks and is made anew.",
        "Fewer to leave a broken rail sooner, where another one can carry on.",
        ge=0,
        le=7,
    )
    rdma_rd_atomic: Count = _key(
        0,
        _RDMA,
        "READs in flight per queue pair. 0: what both devices can.",
        "Fewer to leave the devices' resources to others on the same ports.",
        ge=0,
        le=255,
    )

    metrics_enabled: Flag = _key(
        True,
        _MONITORING,
        "Whether this node answers Prometheus at `http://metrics_host:metrics_port/metrics`. "
        "Everybody who reaches the port can read these numbers. They have no page, no key and no "
        "secret.",
        "Nobody scrapes this node, or the port may not be open.",
    )
    metrics_host: Listen = _key(
        "",
        _MONITORING,
        "Address at which to answer: an address of this host, or `0.0.0.0` for all of them.",
        "Prometheus comes by another network than the peers do, or only through this host itself "
        "(`127.0.0.1`).",
        default_text="`host`",
    )
    metrics_port: Port = _key(
        31997,
        _MONITORING,
        "TCP port for it. 0 takes any free port; `status` says which.",
        "The port is taken.",
        ge=0,
        le=65535,
    )
    metrics_dashboard: Flag = _key(
        True,
        _MONITORING,
        "Whether the same port also serves a page for people at `/` and its JSON below `/api/v1/`: "
        "this node, the whole cluster, and where the page of a key is.",
        "Whoever reaches the port may read metrics but not ask about keys.",
    )
    metrics_namespace_names: Flag = _key(
        False,
        _MONITORING,
        "Whether that page and its JSON have the names of namespaces, not only their ids.",
        "Whoever reaches the port may know them: no name has a tenant's salt.",
    )

    otlp_endpoint: Url = _key(
        "",
        _MONITORING,
        "URL of an OpenTelemetry collector that takes OTLP over HTTP, for example "
        "`http://127.0.0.1:4318`. Gets that are part of a sampled trace send their steps there as "
        "spans. Needs `pip install 'peercached[otel]'`. A user or a password in it is refused, "
        "because `status` shows it. Empty: nothing is traced.",
        "Your engines are traced with OpenTelemetry, and you want to see their gets in the same "
        "traces.",
        default_text="off",
    )

    stop_drain_s: Seconds = _key(
        10.0,
        _SERVICE,
        "How long the daemon may hand its warm pages to peers after SIGTERM, before it leaves and "
        "stops. 0, or with a `pool_file`: it leaves at once. SIGINT never waits, a second signal "
        "ends it at once.",
        "Longer for large pools, together with the service manager's own limit (`TimeoutStopSec`, "
        "`terminationGracePeriodSeconds`); 0 where nobody should get the pages.",
        unit="s",
        live=True,
        ge=0.0,
        le=3600.0,
    )
    log_level: Literal["debug", "info", "warning", "error"] = _key(
        "info",
        _SERVICE,
        "The least severe messages to log (to standard error).",
        "`debug` while hunting a fault.",
        live=True,
    )
    log_format: Literal["text", "json"] = _key(
        "text",
        _SERVICE,
        "`text` for people, `json` for collectors: one object per line. Under systemd each line "
        "of `text` carries its level for the journal, too.",
        "Logs go to a collector that parses JSON.",
        live=True,
    )

    faults: Faults = _key(
        "",
        _TESTS,
        "Injects faults: into transfers `seed=7,corrupt=0.01,hang=0.001`; probabilities of "
        "`delay`, `drop`, `truncate`, `corrupt` and `blind` (taken without a look) per page, "
        "`reset`, `hang` per batch; and into the disk's system calls: `disk_write_eio`, "
        "`disk_write_short`, `disk_no_space`, `disk_sync_eio`, `disk_read_eio`, "
        "`disk_read_corrupt`; `disk_stall`, `disk_read_stall` and `disk_write_stall` of "
        "`disk_stall_ms`.",
        "In tests only, never in production.",
    )

    @property
    def clustered(self) -> bool:
        """Whether there are, or may be, other nodes."""
        return bool(self.discovery_addr) or self.membership == "etcd"

    @property
    def worker_socket(self) -> str:
        """Where workers are served; empty if this node serves none."""
        return "" if self.role == "memory" else self.socket_path

    @property
    def data_sealed(self) -> bool:
        """Whether data_port uses TLS."""
        return bool(self.tls_ca) and self.tls_data_port and self.tls_mode != "off"
