"""All keys of the daemon. docs/configuration.md, the options and the checks are generated from it.

A key exists only if we can say when to change it. Everything else is a constant in the code that
uses it. A name ends in its unit if the type does not show it.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, Strict

from peercached.config import quotas, values
from peercached.config.prices import check_prices

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
Store = Annotated[str, AfterValidator(values.check_store)]
PriceList = Annotated[str, AfterValidator(check_prices)]
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
_COLD = "Object store"
_DIRECTORY = "Directory"
_TRANSFER = "Transfer and deadlines"
_RDMA = "RDMA"
_MONITORING = "Monitoring"
_ROUTERS = "Routers"
_SERVICE = "Service and logs"
_TESTS = "Tests"


class Config(BaseModel):
    """The effective configuration. Immutable; make one with `peercached.config.load`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    node_id: NodeId = _key(
        "",
        _IDENTITY,
        "Name of this node in the cluster: unique, and the same at every start.",
        "Set it for several daemons on one host, or if host names change or repeat.",
        default_text="the host name",
    )
    role: Literal["full", "memory"] = _key(
        "full",
        _IDENTITY,
        "`full` serves the workers of this host. `memory` serves no workers: the node lends its "
        "pool and its disk to the other nodes, and their pages move here before they are evicted.",
        "Use `memory`, with `discovery_addr`, on a host that has memory to spare.",
    )
    host: Host = _key(
        "auto",
        _IDENTITY,
        "Address of this node for its peers: an IP address, or a name of this host, resolved once "
        "at start. `meta_port` and `data_port` are bound to it. `auto`: the local address that "
        "routes to the first of `discovery_addr` or `etcd_endpoints` on another host; 127.0.0.1 "
        "without both.",
        "Set it if the cache should use another network of the host.",
    )
    meta_port: Port = _key(
        31998,
        _IDENTITY,
        "TCP port for the gRPC calls of peers: membership, removals, pins and moves.",
        "Change it if the port is taken. For a head, change `discovery_addr` as well.",
        ge=1,
        le=65535,
    )
    data_port: Port = _key(
        31999,
        _IDENTITY,
        "TCP port for lookups, records, and pages over TCP. Peers need it with RDMA, too. 0: any "
        "free port, and peers learn it.",
        "Change it if the port is taken or a firewall blocks it.",
        ge=0,
        le=65535,
    )

    discovery_addr: Heads = _key(
        [],
        _CLUSTER,
        "The heads of the cluster, each as `host:port` with the head's `meta_port`. A name stands "
        "for all its addresses (8 at most), and they may change. Empty: this node is alone.",
        "Set it to form a cluster: two or three hosts, the same list on every node.",
    )
    membership: Literal["embedded", "etcd"] = _key(
        "embedded",
        _CLUSTER,
        "`embedded`: the nodes keep the list of members themselves (`discovery_addr`). `etcd`: an "
        "etcd service keeps it (`etcd_endpoints`). The same on every node.",
        "Use `etcd` if the site runs etcd and wants the list of nodes there.",
    )
    etcd_endpoints: Heads = _key(
        [],
        _CLUSTER,
        "Members of etcd as `host:port`. If the `tls_` keys are set, the node uses these TLS "
        "files for etcd, too.",
        'Set it with `membership = "etcd"`.',
    )
    etcd_prefix: str = _key(
        "/peercached",
        _CLUSTER,
        "Prefix of all keys of this cluster in etcd. The same on every node.",
        "Change it if several clusters share one etcd.",
        min_length=1,
    )
    max_masters: Count = _key(
        3,
        _CLUSTER,
        "Number of nodes that keep the membership: the heads first, then others by node id. The "
        "others replace masters that die. The same on every node.",
        "1 makes the least traffic, but the cluster needs longer to replace a dead master. More "
        "than 5 only adds traffic.",
        ge=1,
        le=16,
    )
    heartbeat_interval_s: Seconds = _key(
        1.0,
        _CLUSTER,
        "Time between two heartbeats of this node to the masters. The same on every node.",
        "Raise it for thousands of nodes, so that masters have less work.",
        unit="s",
        ge=0.05,
        le=60.0,
    )
    member_ttl_s: Seconds = _key(
        5.0,
        _CLUSTER,
        "A node that is silent for this long, and that other nodes cannot reach either, leaves "
        "the view. Its pages are then misses. At least three heartbeat intervals. The same on "
        "every node.",
        "Lower it to notice dead nodes sooner. Raise it on networks with outages of seconds.",
        unit="s",
        ge=0.2,
        le=600.0,
    )
    state_dir: str = _key(
        "",
        _CLUSTER,
        "Folder for the state that a restart needs: cleared namespaces, removed pages, known "
        "members, events of the last day, its own key. With the known members it finds the "
        "cluster while all heads are down.",
        "Set it wherever files survive a restart. Several daemons can share one folder: their "
        "files have the node ids in their names.",
        default_text="`/var/lib/peercached` if that folder is writable, else none",
    )

    cluster_secret_file: str = _key(
        "",
        _SECURITY,
        "File with the cluster's secret, the same on all nodes: at least 16 bytes, readable by "
        "the daemon's user only. `peercachectl secret` creates and replaces it, also in a running "
        "cluster. The daemon uses new contents within seconds. Empty: peers are not "
        "authenticated, and `status` warns.",
        "Set it, unless no untrusted host can reach the network.",
    )
    tls_ca: str = _key(
        "",
        _SECURITY,
        "PEM file of the authority that signed the peers' certificates (of both while one "
        "replaces another). TLS protects `meta_port`, the calls to etcd and, with "
        "`tls_data_port`, the pages over TCP. Set `tls_ca`, `tls_cert` and `tls_key` together. "
        "The daemon uses new files within seconds.",
        "Set it if the network between the nodes is not trusted.",
    )
    tls_cert: str = _key(
        "",
        _SECURITY,
        "PEM file of this node's certificate chain, valid for its `host`. `peercachectl certs` "
        "makes one.",
        "Set it with `tls_ca`.",
    )
    tls_key: str = _key(
        "", _SECURITY, "PEM file of this node's private key.", "Set it with `tls_ca`."
    )
    tls_mode: Literal["off", "accept", "prefer", "require"] = _key(
        "require",
        _SECURITY,
        "How TLS is used; without `tls_ca` it is off. `require`: TLS only. `prefer`: `meta_port` "
        "accepts TLS only, and the node still calls peers without TLS. `accept`: `meta_port` is "
        "plain, and the node calls peers with or without TLS. `off`: the files are not used.",
        "Change it to switch TLS on in a running cluster, step by step "
        "([security.md](security.md)).",
        live=True,
    )
    tls_data_port: Flag = _key(
        True,
        _SECURITY,
        "With `tls_ca`: encrypt pages, lookups and records at `data_port`, too. Pages over RDMA "
        "are not encrypted.",
        "Turn it off if the network is trusted and TLS costs too much CPU "
        "([performance.md](performance.md)). Nodes may differ.",
    )

    socket_path: str = _key(
        "",
        _WORKERS,
        "Unix socket for the workers of this host, 107 bytes at most.",
        "Set it for several daemons on one host, or if containers share another folder.",
        default_text="`/run/peercached/peercached.sock` for root and if that folder is writable, "
        "else `$XDG_RUNTIME_DIR/peercached/peercached.sock`, or "
        "`/tmp/peercached-UID/peercached.sock` without that variable",
    )
    socket_mode: Mode = _key(
        "0660",
        _WORKERS,
        "File mode of `socket_path`, octal and in quotes: which users can connect as workers.",
        "Change it if workers run as users that cannot join `socket_group`.",
    )
    socket_group: Account = _key(
        "",
        _WORKERS,
        "Group of `socket_path` (name or number). The users of the workers and of the daemon are "
        "in it.",
        "Set it if the workers have another group than `peercached-workers`.",
        default_text="`peercached-workers` if the daemon's user is in such a group, else the "
        "daemon's own group",
    )
    worker_users: Accounts = _key(
        [],
        _WORKERS,
        "Users (names or numbers) that may be workers, besides root and the daemon's user. "
        "`socket_mode` must let them connect. If `worker_groups` is empty, too: all users that "
        "can connect.",
        "Set it if many users can open the socket (`0666` in a shared folder) but may not all use "
        "the cache.",
    )
    worker_groups: Accounts = _key(
        [],
        _WORKERS,
        "Groups (names or numbers). Their members may be workers, besides `worker_users`.",
        "See `worker_users`.",
    )
    admin_socket: str = _key(
        "",
        _WORKERS,
        "Unix socket for `peercachectl`, mode 0600, 107 bytes at most. The daemon makes its "
        "folder, open to the daemon's user only (0700). It must not be in the folder of "
        "`socket_path`, because containers of engines mount that.",
        "Set it if the daemon cannot make the default folder.",
        default_text="beside the folder of `socket_path`: `/run/peercached-admin/peercached.sock`",
    )
    workers_max: Count = _key(
        64,
        _WORKERS,
        "Clients that can be attached at once. A process may have half of them; LMCache has one or "
        "two for each model. The daemon refuses more.",
        "Raise it for more ranks on one host.",
        ge=1,
        le=4096,
    )

    pool_size: Size = _key(
        1 << 30,
        _POOL,
        "Memory for pages: `512MiB`, `8gb` (units in powers of 1024), or plain bytes. It has 1 GiB "
        "at start, or a part in 256. The daemon prepares the rest while it serves.",
        "Set it in production, to the host memory that the engines leave.",
        unit="bytes",
        ge=1 << 20,
        le=1 << 46,
    )
    huge_pages: Flag = _key(
        False,
        _POOL,
        "Take the pool from reserved 2 MiB huge pages. If there are too few, the start fails.",
        "Turn it on if huge pages are reserved (`vm.nr_hugepages`): large pools copy faster.",
    )
    namespace_quotas: Quotas = _key(
        [],
        _POOL,
        "Largest share of the pool for a namespace, as `pattern=share`: `tenant-a/*=0.25`. With "
        "`pattern=share:disk_share` also of `disk_size`: `tenant-a/*=0.25:0.5`. `*` matches "
        "anything, slashes too. The first pattern that matches counts. At its quota a namespace "
        "evicts its own pages; below it, it competes for the pool like any other. At its disk "
        "quota its new pages are not written to disk until older ones have left. A lower quota "
        "takes effect with the namespace's next set.",
        "Set it if models or tenants share a node and one must not crowd out the others.",
        live=True,
    )
    pool_file: str = _key(
        "",
        _POOL,
        "File of the pool, on tmpfs or hugetlbfs (there it has huge pages), mode 0600. A "
        "restarted daemon verifies its pages and serves them again. If `pool_size`, node id, "
        "cluster secret or format changed, it empties the file, and `status` tells it. Empty: the "
        "pool ends with the process.",
        "Set it, with `state_dir`, to keep the cache over restarts and upgrades. Each daemon "
        "needs its own file.",
    )
    spill_bytes_per_s: Size = _key(
        4 << 30,
        _POOL,
        "Limit for moving pages to full nodes with older pages, before the pool evicts them. "
        "Moves to nodes with free memory do not count. 0: no page moves, and evicted pages are "
        "lost unless the disk has them.",
        "Lower it if moves slow down reads. Raise it if some nodes set pages faster than this "
        "while the others are full of older ones (prefill and decode nodes, memory-only nodes).",
        unit="bytes/s",
        live=True,
        ge=0,
        le=1 << 40,
    )
    write_policy: Literal["local", "remote", "both"] = _key(
        "local",
        _POOL,
        "Place of the pages of this node's workers. `local`: in its own pool, until they spill. "
        "`remote`: they move at once to the node with most room. `both`: they are also copied "
        "there. A page that no node takes stays.",
        "Use `remote`, with memory-only nodes, to give a GPU host's memory back to the engines. "
        "Use `both` if the loss of one node must not lose a page.",
    )
    replica_share: Annotated[float, BeforeValidator(values.no_bool)] = _key(
        0.1,
        _POOL,
        "Share of the pool for replicas. If workers of this node read a page from another node 3 "
        "times within 10 minutes, it is kept here as well. 0: no replicas.",
        "Set 0 if the network is as fast as memory. Raise it if most reads are of a few prompts.",
        live=True,
        ge=0.0,
        le=1.0,
    )
    hint_share: Annotated[float, BeforeValidator(values.no_bool)] = _key(
        0.1,
        _POOL,
        "Share of the pool for pages that hints brought here and nobody has used yet, and the same "
        "share for pages that hints retain (docs/routers.md). Tenants that send hints have equal "
        "parts of it: namespaces under one pattern of `namespace_quotas` are one tenant. 0: such "
        "hints are refused.",
        "Raise it if routers know well what comes next. Set 0 if nobody should steer the pool.",
        live=True,
        ge=0.0,
        le=0.5,
    )
    pin_share: Annotated[float, BeforeValidator(values.no_bool)] = _key(
        0.125,
        _POOL,
        "Share of the pool that pins can keep from eviction (`peercachectl pin`, and `pin` of the "
        "client). One namespace may pin half of it at most, and half of its own quota. 0: no pins.",
        "Raise it if many agents pause and come back to long prompts. Set 0 if untrusted workers "
        "share the pool.",
        live=True,
        ge=0.0,
        le=0.5,
    )
    copy_threads: Count = _key(
        0,
        _POOL,
        "Threads that copy a large batch into or out of the pool, including the serving thread. "
        "0: half of the processors, but 4 at most.",
        "Lower it if the engine needs the processors. Raise it if copies stay below memory "
        "bandwidth.",
        ge=0,
        le=64,
    )

    disk_enabled: Flag = _key(
        False,
        _DISK,
        "Keep pages on a local disk, too. Every node can still read evicted pages from it, and a "
        "restart finds them again.",
        "Turn it on if the host has a local disk (NVMe) to spare.",
    )
    disk_path: str = _key(
        "",
        _DISK,
        "Folder for the pages. If its parent exists, the first start makes it. It belongs to this "
        "`node_id` of this cluster: the folder of another daemon is refused.",
        "Set it with `disk_enabled`, best on a local file system of its own.",
    )
    disk_size: Size = _key(
        16 << 30,
        _DISK,
        "Limit for all files in `disk_path` together. The oldest pages are dropped first, "
        "recently read ones last. It also limits the size of a page on the disk: 4 MiB with 1 "
        "GiB, 64 MiB from 16 GiB on.",
        "Set it with `disk_enabled`, and leave some of the disk free.",
        unit="bytes",
        ge=16 << 20,
        le=1 << 50,
    )
    disk_sync: Literal["never", "segment", "batch"] = _key(
        "segment",
        _DISK,
        "When pages are flushed to the disk. `segment`: a power cut loses the file being filled. "
        "`batch`: it loses nothing reported as written. `never`: it loses all that the kernel had "
        "not written back. A killed daemon loses only pages not yet written.",
        "Use `batch` on disks with cheap flushes (power-loss protection). Use `never` if pages "
        "may be lost then.",
    )

    cold_store: Store = _key(
        "",
        _COLD,
        "Object store for pages that outlive the cluster: `s3://bucket/prefix`, `gs://...`, "
        "`az://...` or `file:///folder`. Empty: none. Credentials come from the environment.",
        "Set it if a new cluster should start warm, or if clusters share pages. All clusters of "
        "one store need the same `cluster_secret_file`. Read [cold-tier.md](cold-tier.md) first.",
        shared=True,
    )
    cold_key_file: str = _key(
        "",
        _COLD,
        "File with the key that seals pages before they go to the store, the same on all nodes of "
        "all clusters of the store: at least 32 bytes, readable by the daemon's user only. Objects "
        "of another key, and objects without a seal, are not read. Empty: pages are not sealed.",
        "Set it if the store's operator must not read pages. Make it with `openssl rand -hex 32`. "
        "Without the key, the pages in the store are lost.",
    )
    cold_after_uses: Count = _key(
        1,
        _COLD,
        "Pages that leave this node go to the store if they were read so often from its pool.",
        "0 writes all pages that leave. Raise it if the store fills with pages that "
        "nobody asks for.",
        ge=0,
        le=255,
    )
    cold_size: Size = _key(
        1 << 40,
        _COLD,
        "Bytes of pages in the store. One node deletes the oldest objects beyond it. While it does "
        "not, nodes write no more.",
        "Set it to what the store may cost. The same on all nodes of the store.",
        unit="bytes",
        ge=16 << 20,
        le=1 << 60,
    )
    cold_age_d: Count = _key(
        30,
        _COLD,
        "Objects of the store are deleted after so many days. 0: they have no such limit.",
        "Lower it if nobody reads old pages. The same on all nodes of the store.",
        unit="d",
        ge=0,
        le=36_500,
    )
    cold_prices: PriceList = _key(
        "",
        _COLD,
        "Prices of the store: of 1000 requests (`put`, also for listings; `get`; `delete`), and of "
        "10^9 bytes for a month (`gb_month`), such as `put 0.005, get 0.0004, gb_month 0.023`. "
        "Empty: not known.",
        "Set it, and `peercachectl status` estimates what a month costs.",
    )
    cold_requests_per_s: Count = _key(
        200,
        _COLD,
        "Limit for requests of this node to the store. Listings and records of removals go ahead "
        "of it, about two per second.",
        "Lower it if requests cost too much, or if the store throttles.",
        ge=1,
        le=100_000,
    )

    directory_replicas: Count = _key(
        2,
        _DIRECTORY,
        "Owners of each record in the directory. Pages are not copied.",
        "1 saves memory, but a dead owner causes misses. 3 survives the loss of two owners at "
        "once.",
        shared=True,
        ge=1,
        le=8,
    )
    directory_capacity: Count = _key(
        32_000_000,
        _DIRECTORY,
        "Space for the records that this node owns, 48 bytes each. Memory grows with use. If they "
        "do not fit, the node keeps no records of some nodes, and `status` tells it.",
        "Raise it if the cluster's pages x `directory_replicas` / owners exceed it. Up to four "
        "nodes are all owners. A larger cluster has one owner for each eight nodes, at least four.",
        unit="records",
        ge=1024,
        le=1_000_000_000,
    )
    directory_copies: Count = _key(
        4_000_000,
        _DIRECTORY,
        "Further space, for the records that this node does not own. With the records of all "
        "nodes (128 others at most) it finds pages without asking. If they do not fit, or with 0, "
        "it keeps only the records that it owns.",
        "Raise it if `peercached_copies_only_owned` is 1 and memory is free.",
        unit="records",
        ge=0,
        le=1_000_000_000,
    )
    location_cache_entries: Count = _key(
        262_144,
        _DIRECTORY,
        "Locations of other nodes' pages, kept from `exists` for the next `get`.",
        "Raise it if lookups of small pages run so far ahead that `get` asks the directory again.",
        unit="records",
        ge=1024,
        le=100_000_000,
    )

    verify: Literal["checksum", "header"] = _key(
        "checksum",
        _TRANSFER,
        "The check of each page from a peer: header and payload checksum, or the header only. "
        "Both detect reused slots.",
        "Use `header` only if checksums cost too much and the network is trusted.",
    )
    gpu: Literal["off", "cuda", "stand-in"] = _key(
        "off",
        _TRANSFER,
        "`cuda`: the daemon copies pages from and to memory of GPUs that workers share with it. "
        "It needs NVIDIA's driver and access to `/dev/nvidia*`. `stand-in` plays GPUs, for tests.",
        "Set it if workers register memory of GPUs.",
    )
    max_channels_per_peer: Count = _key(
        8,
        _TRANSFER,
        "Connections per peer and rail, made on demand: RDMA queue pairs, or TCP connections to "
        "the peer's data port.",
        "Lower it with hundreds of peers. Raise it if one stream cannot fill the link.",
        unit="connections",
        ge=1,
        le=64,
    )
    rpc_timeout_ms: Count = _key(
        1000,
        _TRANSFER,
        "Longest wait for one call to a peer. A worker's own deadline ends it sooner. A peer that "
        "does not answer in time is suspect. A lookup asks another owner much earlier.",
        "Raise it on slow or distant networks if healthy peers become suspect.",
        unit="ms",
        ge=10,
        le=60_000,
    )
    publish_timeout_ms: Count = _key(
        1000,
        _TRANSFER,
        "Longest wait of `set` until the owners of its pages have the records. Then `set` "
        "answers, and an owner without them is suspect.",
        "Lower it if `set` must not hold up the engine. Raise it on slow networks.",
        unit="ms",
        live=True,
        ge=1,
        le=60_000,
    )

    protocol: Literal["auto", "rdma", "tcp"] = _key(
        "auto",
        _RDMA,
        "How pages travel between nodes. `auto`: RDMA if this host has a usable port, else TCP; "
        "the log and `status` tell which and why. `rdma`: without a usable port the start fails. "
        "Peers without RDMA are read over TCP.",
        "Use `rdma` in production with RDMA, to notice a broken port at start. Use `tcp` if the "
        "devices are for others only.",
    )
    device_names: Devices = _key(
        [],
        _RDMA,
        "The RDMA devices to use, in order of preference, as `ibv_devices` names them, with "
        "`:port` if not port 1 (`mlx5_0`, `mlx5_1:2`). Each is a rail. Empty: the fastest of the "
        "ports active at start, nearest to the pool first. A named port that is down is used when "
        "it comes up.",
        "Set it if some devices belong to storage or to the engines' own traffic.",
    )
    rdma_gid_index: Count = _key(
        -1,
        _RDMA,
        "Index of the GID in every port's table. -1: chosen by type and address, RoCE v2 and the "
        "GID of `host` first.",
        "Set it only if `peercachectl devices` shows a wrong GID. Indices change when addresses "
        "come and go.",
        ge=-1,
        le=255,
    )
    rdma_mtu: Mtu = _key(
        0,
        _RDMA,
        "Bytes of payload in one packet: 256, 512, 1024, 2048 or 4096. 0: the port's active MTU. "
        "Two peers use the smaller one.",
        "Lower it if a switch between the nodes drops large packets.",
        unit="bytes",
        ge=0,
        le=4096,
    )
    rdma_service_level: Count = _key(
        0,
        _RDMA,
        "Service level of the packets. On InfiniBand the subnet manager maps it to virtual lanes; "
        "on RoCE with a VLAN it is the priority.",
        "Set it on every node if the fabric has a lane for storage.",
        ge=0,
        le=15,
    )
    rdma_traffic_class: Count = _key(
        0,
        _RDMA,
        "Traffic class of the packets. On RoCE the upper six bits are the DSCP (DSCP 26 is 104).",
        "Set it on every node if the switches have a lossless queue for RDMA.",
        ge=0,
        le=255,
    )
    rdma_hop_limit: Count = _key(
        64,
        _RDMA,
        "Routers that a packet may pass.",
        "Set 1 to keep RDMA within one subnet. Raise it on fabrics of many stages.",
        unit="hops",
        ge=1,
        le=255,
    )
    rdma_pkey: PartitionKey = _key(
        0xFFFF,
        _RDMA,
        "InfiniBand partition key, decimal or `0x...`, found by value in each port's table.",
        "Set it if the subnet manager gives these nodes a partition of their own.",
        default_text="`0xffff`, the default partition",
        ge=1,
        le=0xFFFF,
    )
    rdma_timeout: Count = _key(
        16,
        _RDMA,
        "Time until an unacknowledged packet is sent again: 4.096 us x 2^n. 14 is 67 ms, 16 is "
        "268 ms, 18 is 1.1 s.",
        "Raise it if channels break on congested or distant fabrics (`retries exceeded` in the "
        "log). Lower it to notice a dead peer sooner.",
        ge=1,
        le=31,
    )
    rdma_retry_count: Count = _key(
        6,
        _RDMA,
        "How often a packet is sent again before the channel breaks and is made anew.",
        "Lower it to leave a broken rail sooner if there is another rail.",
        ge=0,
        le=7,
    )

    metrics_enabled: Flag = _key(
        True,
        _MONITORING,
        "Serve Prometheus metrics at `http://metrics_host:metrics_port/metrics`. Everybody who "
        "reaches the port can read them. They hold no page, key or secret.",
        "Turn it off if nobody scrapes this node or the port must not be open.",
    )
    metrics_host: Listen = _key(
        "",
        _MONITORING,
        "Address of the metrics port: an address of this host, or `0.0.0.0` for all.",
        "Set it if Prometheus uses another network than the peers, or runs on this host "
        "(`127.0.0.1`).",
        default_text="`host`",
    )
    metrics_port: Port = _key(
        31997,
        _MONITORING,
        "TCP port of the metrics. 0: any free port; `status` tells it.",
        "Change it if the port is taken.",
        ge=0,
        le=65535,
    )
    router_port: Port = _key(
        0,
        _MONITORING,
        "TCP port of the gRPC service for routers, at `metrics_host`. It also opens `POST "
        "/api/v1/hints` on the metrics port. With a cluster secret, callers need the token that "
        "`peercachectl router-token` prints. 0: no routers.",
        "Set it if a router or an orchestrator should send hints (docs/routers.md).",
        ge=0,
        le=65535,
    )
    metrics_dashboard: Flag = _key(
        True,
        _MONITORING,
        "Also serve a dashboard at `/` and its JSON below `/api/v1/` on the metrics port. It "
        "shows this node, the cluster, and the place of a key's page.",
        "Turn it off if users of the port may read metrics but not ask about keys.",
    )
    metrics_namespace_names: Flag = _key(
        False,
        _MONITORING,
        "Show the names of namespaces on the dashboard and in its JSON, not only their ids.",
        "Turn it on if everybody who reaches the port may know the names, and no name contains a "
        "tenant's salt.",
    )

    otlp_endpoint: Url = _key(
        "",
        _MONITORING,
        "URL of an OpenTelemetry collector for OTLP over HTTP, for example "
        "`http://127.0.0.1:4318`. Gets in a sampled trace send their steps there as spans. Needs "
        "`pip install 'peercached[otel]'`. The URL may contain no user or password, because "
        "`status` shows it. Empty: no tracing.",
        "Set it to see gets in the traces of your engines.",
        default_text="off",
    )

    kv_events_port: Port = _key(
        0,
        _ROUTERS,
        "TCP port where routers hear which node has which pages, as events of vLLM's format (ZMQ "
        "PUB). The next port answers requests for missed events. Both are bound to `host`. 0: off.",
        "Set it, the same on every node, if a router should send requests to the nodes that have "
        "their pages ([routers.md](routers.md)).",
        ge=0,
        le=65534,
    )
    kv_events_of: Literal["all", "own"] = _key(
        "all",
        _ROUTERS,
        "Events tell of the pages of `all` nodes, or of this node's `own` pages. A node without "
        "the records of all nodes tells its own.",
        "Use `own` for a router that takes each address for one worker.",
    )
    kv_events_auth: Literal["auto", "curve", "none"] = _key(
        "auto",
        _ROUTERS,
        "Who may subscribe. `curve`: programs with the keys that `peercachectl kv-events` prints, "
        "and all is encrypted. `none`: everybody who reaches the port. `auto`: `curve` if there is "
        "a cluster secret.",
        "Use `none` if the router cannot do CURVE and the network is trusted.",
    )

    stop_drain_s: Seconds = _key(
        10.0,
        _SERVICE,
        "Time after SIGTERM to hand warm pages to peers, and used others to the object store, "
        "before the daemon leaves and stops. 0, or with a `pool_file`: it leaves at once. SIGINT "
        "never waits, and a second signal ends it at once.",
        "Raise it for large pools, together with the service manager's limit (`TimeoutStopSec`, "
        "`terminationGracePeriodSeconds`). Set 0 if nobody should get the pages.",
        unit="s",
        live=True,
        ge=0.0,
        le=3600.0,
    )
    log_level: Literal["debug", "info", "warning", "error"] = _key(
        "info",
        _SERVICE,
        "The lowest severity to log, to standard error.",
        "Use `debug` to find a fault.",
        live=True,
    )
    log_format: Literal["text", "json"] = _key(
        "text",
        _SERVICE,
        "`text` for people, `json` for collectors: one object per line. Under systemd each line "
        "of `text` also carries its level for the journal.",
        "Use `json` if a collector parses the logs.",
        live=True,
    )

    faults: Faults = _key(
        "",
        _TESTS,
        "Injects faults into transfers: `seed=7,corrupt=0.01,hang=0.001`. `delay`, `drop`, "
        "`truncate`, `corrupt` and `blind` (read without a check) are probabilities per page, "
        "`reset` and `hang` per batch. Faults of the disk's system calls: `disk_write_eio`, "
        "`disk_write_short`, `disk_no_space`, `disk_sync_eio`, `disk_read_eio`, "
        "`disk_read_corrupt`. Stalls of `disk_stall_ms`: `disk_stall`, `disk_read_stall`, "
        "`disk_write_stall`.",
        "Use it in tests only.",
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
