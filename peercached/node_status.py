"""The status document (admin/status.py) of a running node, with its health findings."""

from __future__ import annotations

import os
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from peercached import __version__, security_status
from peercached.disk_status import say_disk
from peercached.health import Findings, Say, kinds
from peercached.membership import NodeAddress
from peercached.removals.sentences import say_removals
from peercached.transport_health import rdma_devices, say_transport
from peercached.warm_restart import recovery_of, say_recovery

if TYPE_CHECKING:
    from peercached.daemon import Daemon

# A stream that is out of sync for less than this is usually just starting: no finding.
BEHIND_S = 10.0
UNREACHED_S = 600.0


def protocol_with(own: NodeAddress, peer: NodeAddress) -> str:
    """The protocol for that peer's pages: "rdma" if both nodes have rails."""
    return "rdma" if own.rails and peer.rails else "tcp"


def _refused_by_drain(stats: dict[str, Any]) -> int:
    return int(stats.get("operations", {}).get("set", {}).get("draining", 0))


class NodeStatus:
    """Reads the daemon's parts and changes none. On the event loop's thread."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._behind_since: dict[str, float] = {}
        self._unreached = 0  # batches, at the last check
        self._unreached_at = float("-inf")  # when the number last rose

    def document(self) -> dict[str, Any]:
        daemon, config = self._daemon, self._daemon.config
        stats = daemon.engine.stats()
        operations: dict[str, Any] = dict(stats.get("operations", {}))
        operations["control"] = self._control_counters(stats)
        own = daemon.placement.own.address
        transport = self._transport()
        return {
            "node": {
                "id": own.node_id,
                "incarnation": own.incarnation,
                "version": __version__,
                "host": own.host,
                "meta_port": own.peer_port,
                "data_port": own.data_port,
                "metrics_host": config.metrics_host,
                "metrics_port": daemon.web.port,
                "socket_path": config.socket_path,
                "pid": os.getpid(),
                "uptime_s": time.monotonic() - daemon.started_at,
            },
            "health": self._health(stats, transport),
            "security": security_status.document(daemon),
            "pool": stats.get("pool", {}),
            "quotas": stats.get("quotas", []),
            "recovery": recovery_of(stats),
            "removals": self._removals(stats),
            "disk": self._disk(stats),
            "shard": stats.get("shard", {}),
            "copies": stats.get("copies", {}),
            "locations": stats.get("locations", {}),
            "ipc": stats.get("ipc", {}),
            "workers": [dict(worker) for worker in daemon.engine.workers()],
            "transport": transport,
            "transfer": self._transfer(stats),
            "tcp_server": stats.get("tcp_server", {}),
            "membership": self._membership(),
            "streams": daemon.streams.status(),
            "drain": daemon.drain.progress.document(_refused_by_drain(stats)),
            "handover": stats.get("handover", {}),
            "holds": stats.get("holds", {}),
            "metrics": {"connections": daemon.web.connections, **asdict(daemon.web.counters)},
            "operations": operations,
            "namespaces": [
                {"id": namespace_id, "epoch": epoch}
                for namespace_id, epoch in sorted(daemon.engine.namespace_epochs().items())
            ],
        }

    def _unreached_lately(self, count: int) -> bool:
        """Whether the count rose in the last UNREACHED_S; an old problem needs no attention."""
        now = time.monotonic()
        if count != self._unreached:
            self._unreached, self._unreached_at = count, now
        return now - self._unreached_at < UNREACHED_S

    def line(self) -> str:
        """One line for the service manager."""
        now = self.document()
        members, pool = now["membership"]["members"], now["pool"]
        used = pool.get("used_bytes", 0) / max(pool.get("capacity_bytes", 0), 1)
        health = now["health"]
        worst = next(
            (h for severity in ("error", "warning") for h in health if h["severity"] == severity),
            None,
        )
        others = len(members) - 1
        return (
            f"Serving, with {others} other node{'' if others == 1 else 's'}; pool {used:.0%} used; "
            + (worst["sentence"] if worst else "healthy.")
        )

    def _removals(self, stats: dict[str, Any]) -> dict[str, Any]:
        now = time.monotonic()
        ours, driven = (
            self._daemon.removals.document(now),
            self._daemon.removal_driver.document(now),
        )
        return {**stats.get("removals", {}), **ours, **driven}

    def _disk(self, stats: dict[str, Any]) -> dict[str, Any]:
        """Empty without a disk tier."""
        disk: dict[str, Any] = dict(stats.get("disk", {}))
        if disk:
            promotes = self._daemon.promotes
            disk["path"] = self._daemon.config.disk_path
            disk["promotes_asked"] = promotes.asked
            disk["promotes_served"] = promotes.served
            disk["promotes_refused"] = promotes.refused
        return disk

    def _control_counters(self, stats: dict[str, Any]) -> dict[str, int]:
        daemon = self._daemon
        lookups = daemon.lookups.counters
        return {
            "publish_batches": daemon.publisher.batches,
            "publish_timeouts": daemon.publisher.timeouts,
            "publish_unreached": daemon.publisher.unreached,
            "lookups": lookups.lookups,
            "lookup_rpcs": lookups.asked,
            "lookups_fell_through": lookups.fell_through,
            "lookups_overdue": lookups.overdue,
            "foreign_holders": lookups.foreign_holders,
            "stream_gaps": daemon.owner_side.gaps,
            "malformed_calls": daemon.servicer.malformed,
            "unauthenticated_calls": daemon.servicer.interceptor.unauthenticated,
            "refused_handshakes": daemon.sessions.refused,
            "events_dropped": int(stats.get("events_dropped", 0)),
        }

    def _transport(self) -> dict[str, Any]:
        daemon = self._daemon
        return {
            **daemon.engine.transport(),
            "channels_connected": daemon.connects.connected,
            "channels_refused": daemon.connects.refused,
            "channels_accepted": daemon.accepts.accepted,
            "accepts_refused": daemon.accepts.refused,
        }

    def _transfer(self, stats: dict[str, Any]) -> list[dict[str, Any]]:
        nodes = self._daemon.placement.nodes
        peers = []
        for peer in stats.get("peers", []):
            node = nodes.get(peer["index"])
            if node is not None:
                peers.append(
                    {
                        "node_id": node.address.node_id,
                        "incarnation": node.address.incarnation,
                        "engine": protocol_with(self._daemon.placement.own.address, node.address),
                        **{k: v for k, v in peer.items() if k != "index"},
                    }
                )
        return peers

    def _membership(self) -> dict[str, Any]:
        daemon = self._daemon
        placement = daemon.placement
        return {
            "view_number": placement.view.counter,
            "view_mark": placement.view.mark,
            "heads": daemon.config.discovery_addr,
            **daemon.cluster.document(),
            "members": self.members(),
        }

    def members(self) -> list[dict[str, Any]]:
        """The view's members (admin/status.py's Member), ascending by node id."""
        placement = self._daemon.placement
        shares = dict(self._daemon.engine.ring_shares())
        return [
            {
                "node_id": node.address.node_id,
                "incarnation": node.address.incarnation,
                "host": node.address.host,
                "peer_port": node.address.peer_port,
                "data_port": node.address.data_port,
                "pool_bytes": node.address.pool_bytes,
                "rails": node.address.rails,
                "protocol": ""
                if node is placement.own
                else protocol_with(placement.own.address, node.address),
                "suspect": node.suspect,
                "state": "leaving" if node.leaving else "alive",
                "is_self": node is placement.own,
                "ring_share": shares.get(node.index, 0.0),
            }
            for node in sorted(placement.nodes.values(), key=lambda n: n.address.node_id)
        ]

    # --- health

    def _health(self, stats: dict[str, Any], transport: dict[str, Any]) -> list[dict[str, str]]:
        findings = Findings()
        say = findings.say
        self._daemon.drain.progress.say(say, _refused_by_drain(stats))
        self._say_membership(say)
        security_status.say_security(say, self._daemon, stats)
        self._say_directory(say, stats)
        say_recovery(say, recovery_of(stats), self._daemon.epochs.keeper.problem)
        say_removals(say, self._removals(stats))
        say_transport(say, self._daemon.config.protocol, transport, rdma_devices())
        self._say_corruption(say, stats)
        self._say_workers(say)
        disk, quotas = stats.get("disk", {}), stats.get("quotas", [])
        say_disk(say, self._daemon.config.disk_path, disk, quotas)
        self._daemon.settings.say(say)
        faults = self._daemon.config.faults
        if faults:
            say(
                kinds.FAULTS_INJECTED,
                f"Faults are injected into transfers on purpose ({faults}).",
                "Remove the key faults: it is for tests.",
            )
        return findings.document()

    def _say_membership(self, say: Say) -> None:
        daemon = self._daemon
        daemon.cluster.say(say)
        now = time.monotonic()
        for node, reason, since in daemon.failures.suspects.reasons():
            say(
                kinds.PEER_SUSPECT,
                f"{node.address.node_id} at {node.address.endpoint} is suspect (for "
                f"{now - since:.0f} s): {reason}. Its pages are misses meanwhile.",
                "If it stays: look at that daemon and at the network in between (both ports).",
                about=node.address.node_id,
            )

    def _say_corruption(self, say: Say, stats: dict[str, Any]) -> None:
        operations = stats.get("operations", {})
        local, remote = operations.get("corrupt_local", 0), operations.get("corrupt_remote", 0)
        if local:
            say(
                kinds.CORRUPT_HERE,
                f"{local} pages in this node's pool were corrupt (wrong checksum) and dropped.",
                "Look for memory errors of this machine (edac-util, mcelog, dmesg).",
            )
        if remote:
            peers = ", ".join(p["node_id"] for p in self._transfer(stats) if p.get("corrupt"))
            say(
                kinds.CORRUPT_FROM_PEERS,
                f"{remote} pages from peers ({peers or 'gone since'}) arrived with a wrong "
                "checksum. They were read again or became misses.",
                "Look for memory errors of those machines and for workers that write into their "
                "receive buffers during a get.",
            )

    def _say_workers(self, say: Say) -> None:
        for worker in self._daemon.engine.workers():
            if worker["stuck"]:
                say(
                    kinds.WORKER_STUCK,
                    f"Worker {worker['name'] or 'without a name'} (pid {worker['pid']}) gave up "
                    f"{worker['stuck']} requests that this daemon is still copying. The worker "
                    "cannot reuse that memory until the copies end.",
                    "If this lasts, the machine is short of memory, or its memory is very slow: "
                    "check swap and the daemon's cgroup limits.",
                )

    def _say_directory(self, say: Say, stats: dict[str, Any]) -> None:
        daemon = self._daemon
        now = time.monotonic()
        behind = {
            stream["owner"]: stream
            for stream in daemon.streams.status()
            if stream["state"] != "live"
        }
        self._behind_since = {o: self._behind_since.get(o, now) for o in behind}
        for owner, since in self._behind_since.items():
            problem = behind[owner]["problem"]
            if problem or now - since > BEHIND_S:
                say(
                    kinds.RECORDS_WAIT,
                    f"Owner {owner} does not have all records of this node "
                    f"({behind[owner]['state']}{': ' + problem if problem else ''}).",
                    "Pages set here are still found through their other owners. If this lasts, "
                    f"check the daemon on {owner}.",
                    about=owner,
                )
        if self._unreached_lately(daemon.publisher.unreached):
            say(
                kinds.SET_WITHOUT_OWNERS,
                f"No owner could be reached for {daemon.publisher.unreached} set batches. Their "
                "records follow when an owner is back. Until then other nodes cannot find these "
                "pages.",
            )
        shard = stats.get("shard", {})
        if shard.get("full"):
            say(
                kinds.DIRECTORY_FULL,
                f"The directory shard refused {shard['full']} records because it was full: "
                f"{shard.get('entries')} of {shard.get('capacity_entries')} are in use.",
                "Raise directory_capacity; until then those pages are found only on their holder.",
            )
        dropped = stats.get("events_dropped", 0)
        if dropped:
            say(
                kinds.REQUESTS_DROPPED,
                f"The control plane was overloaded: {dropped} requests from the data plane were "
                "dropped.",
                "Give the daemon more CPU. If it continues, report it with this status.",
            )
