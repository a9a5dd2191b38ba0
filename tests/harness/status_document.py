"""The status document of a busy node in a cluster of three, for tests of its readers."""

from typing import Any

from peercached.admin.status import Status


def status_document() -> dict[str, Any]:
    """The status of node "a", with the peers "b" (suspect) and "c"."""
    status: dict[str, Any] = Status().model_dump(mode="json")
    status["node"] |= {"id": "a", "version": "0.1.0", "uptime_s": 60.0}
    status["health"] = [
        {"code": "peer_suspect", "severity": "warning", "sentence": "b is suspect.", "remedy": ""}
    ]
    status["pool"] |= {
        "capacity_bytes": 64 << 20,
        "used_bytes": 32 << 20,
        "payload_bytes": 30 << 20,
        "keys": 200,
        "classes": [
            {
                "stride_bytes": 135_168,
                "slots": 200,
                "used": 190,
                "spans": 25,
                "evictions": 7,
                "pinned": 3,
            },
            {
                "stride_bytes": 8192,
                "slots": 100,
                "used": 10,
                "spans": 1,
                "evictions": 0,
                "pinned": 0,
            },
        ],
    }
    outcomes = ("ok", "absent", "stale", "deadline", "suspect", "error", "no_space", "draining")
    status["operations"] = {
        "set": dict.fromkeys(outcomes, 1),
        "get": dict.fromkeys(outcomes, 2),
        "get_local": 1,
        "get_remote": 1,
        "bytes_set": 1 << 20,
        "bytes_got": 1 << 20,
        "control": {"events_dropped": 3},
    }
    status["demand"] = {
        "asked": 100,
        "found": {"pool": 6, "disk": 0, "peer": 3, "peer_disk": 0},
        "evicted": {"2x": 10, "4x": 20},
        "tokens_asked": 6400,
        "tokens_found": 576,
    }
    status["namespaces"] = [
        {"id": "0a" * 16, "name": "llama", "pool_pages": 200, "pool_bytes": 32 << 20,
         "demand": status["demand"]}
    ]  # fmt: skip
    status["disk"] = {"state": "on", "pages": 1000, "queued_bytes": 1 << 20, "write_errors": 0}
    status["transport"] |= {
        "protocol": "rdma",
        "rails": [{"device": "mlx5_0", "port": 1, "up": True, "pages": 5, "bytes": 640_000}],
    }
    status["transfer"] = [
        {"node_id": peer, "channels": 2, "pages": 10, "bytes": 1 << 20, "errors": 1, "deadlines": 0}
        for peer in "bc"
    ]
    status["membership"] |= {
        "view_number": 7,
        "is_master": True,
        "masters": [{"node_id": "a", "answers": True}, {"node_id": "b", "answers": False}],
        "members": [
            {
                "node_id": name,
                "suspect": name == "b",
                "state": "alive",
                "is_self": name == "a",
                "ring_share": 1 / 3,
            }
            for name in "abc"
        ],
    }
    status["followers"] = [{"node_id": peer, "state": "live", "behind": 1} for peer in "bc"]
    status["security"] |= {"tls": True, "tls_seconds_left": 3600, "refused_handshakes": 2}
    status["security"] |= {"unauthenticated_calls": 3, "misfit_certificates": 4}
    status["tcp_server"]["unauthorised"] = 5
    status["quotas"] = [
        {"id": "0b" * 16, "namespace": "tenant", "bytes": 5, "quota_bytes": 10, "evictions": 1}
    ]
    status["workers"] = [{"regions": 2, "region_bytes": 2 << 20, "connections": 1}]
    status["gpus"] = [
        {"id": "0c" * 16, "name": "H100", "regions": 3, "region_bytes": 4096, "copied_bytes": 65536}
    ]
    return status
