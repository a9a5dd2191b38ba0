"""Every key of the daemon, once. docs/configuration.md, the options and the checks come from here.

A key exists only if someone can say when to change it; what nobody would change is a constant
where it is used. Names end in their unit where the type does not tell it.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from peercached.config import values

Size = Annotated[int, BeforeValidator(values.parse_size)]
Count = Annotated[int, BeforeValidator(values.no_bool)]
Port = Annotated[int, BeforeValidator(values.no_bool)]
Seconds = Annotated[float, BeforeValidator(values.no_bool), AfterValidator(values.finite)]
Heads = Annotated[list[str], BeforeValidator(values.split_list), AfterValidator(values.check_heads)]
Mode = Annotated[str, BeforeValidator(values.parse_mode)]
NodeId = Annotated[str, AfterValidator(values.check_node_id)]
Host = Annotated[str, AfterValidator(values.check_host)]
Faults = Annotated[str, AfterValidator(values.check_faults)]


def _key(
    default: Any,
    section: str,
    what: str,
    when: str,
    *,
    unit: str = "",
    default_text: str = "",
    **bounds: Any,
) -> Any:
    extra: dict[str, Any] = {
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
_DIRECTORY = "Directory"
_TRANSFER = "Transfer and deadlines"
_LOGS = "Logs"
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
    host: Host = _key(
        "auto",
        _IDENTITY,
        "Address under which the peers reach this node; both ports are bound to it. `auto` is "
        "127.0.0.1 without `discovery_addr`, else the local address that routes to its first head.",
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
        "head's `meta_port`. Empty: this node is on its own.",
        "Always, to form a cluster: the same list on every node, two or three of the hosts.",
    )
    heartbeat_interval_s: Seconds = _key(
        1.0,
        _CLUSTER,
        "How often this node tells the heads that it lives.",
        "Thousands of nodes: longer makes the heads' work less. The same on every node.",
        unit="s",
        ge=0.05,
        le=60.0,
    )
    member_ttl_s: Seconds = _key(
        5.0,
        _CLUSTER,
        "After this long without a heartbeat a node is out of the view and its pages are misses. "
        "At least three heartbeat intervals. The same on every node.",
        "Shorter to notice dead nodes sooner; longer on networks with outages of seconds.",
        unit="s",
        ge=0.2,
        le=600.0,
    )

    cluster_secret_file: str = _key(
        "",
        _SECURITY,
        "File with the secret that all nodes of the cluster share, at least 16 bytes, readable by "
        "the daemon's user and group only. Empty: peers are not authenticated, and `status` says "
        "so.",
        "Always, unless the network is closed to everyone else.",
    )
    tls_ca: str = _key(
        "",
        _SECURITY,
        "PEM file of the authority that signed the peers' certificates. TLS covers the peers' "
        "calls (`meta_port`). All three `tls_` keys, or none.",
        "The network between the nodes is not trusted.",
    )
    tls_cert: str = _key(
        "",
        _SECURITY,
        "PEM file of this node's certificate chain, valid for its `host`.",
        "With `tls_ca`.",
    )
    tls_key: str = _key("", _SECURITY, "PEM file of this node's private key.", "With `tls_ca`.")

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
        "Workers run as another user that cannot join the daemon's group.",
    )
    admin_socket: str = _key(
        "",
        _WORKERS,
        "Unix socket for `peercachectl`, mode 0660, 107 bytes at most.",
        "Operators' tools look for it elsewhere.",
        default_text="`socket_path` with `.admin` before its `.sock`",
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
    huge_pages: bool = _key(
        False,
        _POOL,
        "Take the pool from reserved 2 MiB huge pages. Too few of them is an error at start.",
        "Huge pages are reserved (`vm.nr_hugepages`): large pools copy faster.",
    )
    copy_threads: Count = _key(
        0,
        _POOL,
        "Threads that help to copy large batches in and out of the pool. 0 chooses by processors.",
        "The engine needs the processors more (fewer), or copies do not reach memory speed (more).",
        ge=0,
        le=64,
    )

    vnodes: Count = _key(
        160,
        _DIRECTORY,
        "Positions of each node on the ring. The same on every node.",
        "More spread the directory more evenly, but make rings of thousands of nodes large.",
        ge=1,
        le=4096,
    )
    directory_replicas: Count = _key(
        2,
        _DIRECTORY,
        "Owners that keep each record (the record, not the page). The same on every node.",
        "1 to save memory where a dead owner's misses do not matter; 3 to lose two owners at once.",
        ge=1,
        le=8,
    )
    directory_capacity: Count = _key(
        10_000_000,
        _DIRECTORY,
        "Records that this node's shard may hold, about 48 bytes each; memory grows only as used. "
        "Beyond it records are refused, counted, and `status` says so.",
        "The cluster's pages x `directory_replicas` / nodes exceed it.",
        unit="records",
        ge=1024,
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
        "What is checked of a page read from a peer: header and payload checksum, or the header "
        "only, which still catches reused slots.",
        "`header` only where the checksum's measured cost hurts and the network is trusted.",
    )
    channels_per_peer: Count = _key(
        8,
        _TRANSFER,
        "Connections to one peer's data port, at most.",
        "Fewer with hundreds of peers; more on links that one stream cannot fill.",
        unit="connections",
        ge=1,
        le=64,
    )
    rpc_timeout_ms: Count = _key(
        1000,
        _TRANSFER,
        "Longest wait for one call to a peer; a worker's own deadline ends it sooner. A peer that "
        "does not answer in time is suspect.",
        "Longer on slow or distant networks, where healthy peers become suspect.",
        unit="ms",
        ge=10,
        le=60_000,
    )
    publish_timeout_ms: Count = _key(
        1000,
        _TRANSFER,
        "How long `set` waits for the owners to accept its records before it answers without "
        "the slow ones; their records follow on their streams.",
        "Shorter when `set` must never hold the engine up; longer on slow networks.",
        unit="ms",
        ge=1,
        le=60_000,
    )

    log_level: Literal["debug", "info", "warning", "error"] = _key(
        "info",
        _LOGS,
        "The least severe messages to log (to standard error).",
        "`debug` while hunting a fault.",
    )
    log_format: Literal["text", "json"] = _key(
        "text",
        _LOGS,
        "`text` for people, `json` for collectors: one object per line.",
        "Logs go to a collector that parses JSON.",
    )

    faults: Faults = _key(
        "",
        _TESTS,
        "Injects faults into transfers: `seed=7,corrupt=0.01,hang=0.001`; probabilities of "
        "`delay`, `drop`, `truncate`, `corrupt` per page, `reset`, `hang` per batch.",
        "In tests only, never in production.",
    )
