"""Adapter for the side-by-side benchmark: two daemons on loopback, with one worker at each.

BENCH_ADAPTERS=<this folder> run.py --systems peercached/tcp
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from .base import Adapter, Service

REPOSITORY = Path(__file__).resolve().parents[3]


class Peercached(Adapter):
    venv = str(REPOSITORY / ".venv")
    ports = ("meta_a", "data_a", "meta_b", "data_b")
    variants: ClassVar[dict[str, dict[str, str]]] = {"tcp": {}}
    note = "one daemon a node; checksums verified on every read"

    @classmethod
    def services(
        cls,
        opts: Any,
        ports: Mapping[str, int],
        workdir: Path,
        capacity: int,
        page_size: int,
        venv_bin: Path,
    ) -> list[Service]:
        def daemon(name: str, pool_bytes: int) -> Service:
            socket_path = f"{workdir}/{name}.sock"
            return Service(
                name,
                [
                    f"{venv_bin}/peercached",
                    f"--node-id={name}",
                    "--host=127.0.0.1",
                    f"--meta-port={ports['meta_' + name]}",
                    f"--data-port={ports['data_' + name]}",
                    "--metrics-port=0",
                    f"--socket-path={socket_path}",
                    f"--admin-socket={workdir}/admin/{name}.sock",
                    f"--discovery-addr=127.0.0.1:{ports['meta_a']}",
                    f"--pool-size={pool_bytes}",
                ],
                ready_path=socket_path,
            )

        return [daemon("a", 2 * capacity), daemon("b", 64 << 20)]

    def start(self, addr: int, length: int) -> None:
        from peercache_client import Client

        name = "a" if self.node.role == "producer" else "b"
        self.client = Client(f"{self.node.workdir}/{name}.sock", namespace="bench", timeout_s=60.0)
        self.base = addr
        self.region = self.client.register(self.node.buffer_fd)
        until = time.monotonic() + 30
        while True:
            daemon = self.client.stats()["daemon"] or {"nodes": []}
            if any(node["connected"] for node in daemon["nodes"]):
                break
            if time.monotonic() > until:
                raise RuntimeError("the two daemons did not find each other in 30 s")
            time.sleep(0.05)

    def set_batch(self, keys: list[str], ptrs: list[int], sizes: list[int]) -> list[bool]:
        offsets = [at - self.base for at in ptrs]
        return [bool(s) for s in self.client.batch_set(keys, self.region, offsets, sizes)]

    def exists_batch(self, keys: list[str]) -> int:
        return self.client.batch_exists(keys)

    def get_batch(self, keys: list[str], ptrs: list[int], sizes: list[int]) -> list[bool]:
        offsets = [at - self.base for at in ptrs]
        return [bool(s) for s in self.client.batch_get(keys, self.region, offsets, sizes)]

    def clear(self) -> bool:
        self.client.clear()
        return True

    def stop(self) -> None:
        self.client.close()


ADAPTER = Peercached
