"""The pool's and the workers' part of the status document, and their health findings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from peercached.component import Component, Stats
from peercached.health import Say, kinds
from peercached.health.recent_growth import DAY_S, Recent

if TYPE_CHECKING:
    from peercached._native import Engine

# These sections are the data plane's own, field by field.
_SECTIONS = ("pool", "demand", "shard", "copies", "locations", "ipc", "handover", "holds")


class DataPlaneStatus(Component):
    """`faults`: the key of that name."""

    def __init__(self, engine: Engine, faults: str) -> None:
        self._engine = engine
        self._faults = faults
        self._corrupt = Recent(DAY_S)

    def sections(self, stats: Stats) -> dict[str, Any]:
        return {
            **{name: stats.get(name, {}) for name in _SECTIONS},
            "quotas": [
                {"id": self._engine.namespace_id(one["namespace"]), **one}
                for one in stats.get("quotas", [])
            ],
            "gpus": stats.get("gpus", []),
            "workers": [dict(worker) for worker in self._engine.workers()],
            "namespaces": [
                {"id": self._engine.namespace_id(one["name"]), **one}
                for one in stats.get("namespaces", [])
            ],
            "namespaces_open": stats.get("namespaces_open", 0),
            "epochs": [
                {"id": namespace_id, "epoch": epoch}
                for namespace_id, epoch in sorted(self._engine.namespace_epochs().items())
            ],
        }

    def say(self, say: Say, stats: Stats) -> None:
        corrupt = stats.get("operations", {}).get("corrupt_local", 0)
        if corrupt := self._corrupt.grown(corrupt):
            say(
                kinds.CORRUPT_HERE,
                f"{corrupt} pages in this node's pool were corrupt (wrong checksum) in the last "
                "day, and were dropped.",
                "Look for memory errors of this machine (edac-util, mcelog, dmesg).",
            )
        for worker in self._engine.workers():
            if worker["stuck"]:
                say(
                    kinds.WORKER_STUCK,
                    f"Worker {worker['name'] or 'without a name'} (pid {worker['pid']}) gave up "
                    f"{worker['stuck']} requests that this daemon is still copying. The worker "
                    "cannot reuse that memory until the copies end.",
                    "If this lasts, the machine is short of memory, or its memory is very slow: "
                    "check swap and the daemon's cgroup limits.",
                )
        for gpu in stats.get("gpus", []):
            if gpu["why_lost"]:
                say(
                    kinds.GPU_LOST,
                    f"Copies of the GPU {gpu['name']} ({gpu['id']}) failed: {gpu['why_lost']}. "
                    f"Its {gpu['regions']} regions are out of use.",
                    "Restart this daemon, and the GPU's workers if it was reset or removed. If it "
                    "fails again, look for its errors in nvidia-smi and dmesg (Xid).",
                )
            elif gpu["why_slow"]:
                say(
                    kinds.GPU_SLOW,
                    f"Memory could not be pinned for the GPU {gpu['name']} ({gpu['id']}): "
                    f"{gpu['why_slow']}. Copies are slow.",
                    "See that the pool fits into memory and into the daemon's cgroup, and that "
                    "LimitMEMLOCK= of its unit is infinity. Then restart this daemon.",
                )
        if self._faults:
            say(
                kinds.FAULTS_INJECTED,
                f"Faults are injected into transfers on purpose ({self._faults}).",
                "Remove the key faults: it is for tests.",
            )
