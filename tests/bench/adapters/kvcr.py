"""Adapter for the side-by-side benchmark: KVCR 0.1.1 over NIXL, one process at each node.

    python3 -m venv $PEERS_VENVS/kvcr && $PEERS_VENVS/kvcr/bin/pip install numpy kvcr==0.1.1
    BENCH_ADAPTERS=<this folder> run.py --systems kvcr/ucx-tcp

A set deposits pages in KVCR's memory at node A. KVCR has no directory: a router tells node B which
node has which keys. The benchmark plays the router, so only gets compare.
"""

from __future__ import annotations

import mmap
import threading
import time
from typing import Any, ClassVar

from .base import Adapter

CALL_S = 60.0
IDLE_S = 0.0002


class Keys:
    """Keys of the benchmark are hexadecimal; hints have 64 bits of them."""

    @staticmethod
    def encode(key: str) -> bytes:
        return bytes.fromhex(key)

    @staticmethod
    def decode(key: bytes) -> int:
        return int.from_bytes(key[:8], "big")


class Kvcr(Adapter):
    venv = "kvcr"
    ports = ("control_a", "control_b", "nixl_a", "nixl_b")
    has_directory = False
    many_readers = False
    any_page_size = False
    variants: ClassVar[dict[str, dict[str, str]]] = {
        "ucx-default": {},
        "ucx-tcp": {"UCX_TLS": "tcp"},
    }
    note = "in the engine's process; the benchmark plays the router, so set and exists are not like"

    @classmethod
    def env(cls, opts: Any) -> dict[str, str]:
        return {"NIXL_LOG_LEVEL": "WARN", **opts}

    def start(self, addr: int, length: int) -> None:
        import numpy
        from kvcr import KVCR, KVCRBindings
        from kvcr.config import (
            KVCRBackendConfigs,
            KVCRConfig,
            LocalDramOptions,
        )
        from kvcr.control_channels import ZmqPeerControlChannel
        from kvcr.types import MemoryRef, RegionDescriptor

        node = self.node
        side = "a" if node.role == "producer" else "b"
        self.name = f"node-{side}"
        self.reference = MemoryRef
        self.base, self.table, self.source, self.requests = addr, set[str](), "", 0
        size = node.page_size
        self.memory = numpy.frombuffer(mmap.mmap(-1, 2 * node.capacity), dtype=numpy.uint8)
        self.memory[:] = 0
        control = ZmqPeerControlChannel("127.0.0.1", node.ports[f"control_{side}"], "127.0.0.1")
        self.endpoint = control.endpoint
        self.kvcr = KVCR(
            KVCRConfig(
                nixl_agent_name=self.name,
                nixl_listen_port=node.ports[f"nixl_{side}"],
                pool_layouts=[("", size)],
                operation_timeout_ms=int(CALL_S * 1000),
                abandon_timeout_ms=int(2 * CALL_S * 1000),
            ),
            KVCRBindings(  # nothing of the engine's own memory is offered
                request_pin=lambda keys: 0,
                poll_pin_results=list,
                release_pin=lambda handle: True,
                framework_control=control,
                key_adapter=Keys(),
            ),
            KVCRBackendConfigs(
                framework_regions=[RegionDescriptor(addr=addr, size=size, count=length // size)],
                local_dram=LocalDramOptions(
                    pools=[("", self.memory.ctypes.data, self.memory.nbytes)]
                ),
            ),
        )
        self.lock = threading.Lock()
        self.ended = threading.Event()
        self.serving = threading.Thread(target=self._serve, daemon=True)
        if side == "a":
            self.serving.start()

    def _serve(self) -> None:
        """The source's part of a transfer needs someone who polls, as an engine does."""
        while not self.ended.wait(0.002):
            with self.lock:
                self.kvcr.poll_completed()

    def export(self) -> Any:
        return {"endpoint": self.endpoint, "keys": sorted(self.table)}

    def connect(self, blob: Any) -> None:
        self.source, self.table = blob["endpoint"], set(blob["keys"])

    def set_batch(self, keys: list[str], ptrs: list[int], sizes: list[int]) -> list[bool]:
        with self.lock:
            done = self._wait(self.kvcr.deposit(self._blocks(keys, ptrs)), keys)
        self.table.update(key for key, ok in zip(keys, done, strict=True) if ok)
        return done

    def exists_batch(self, keys: list[str]) -> int:
        return sum(key in self.table for key in keys)

    def get_batch(self, keys: list[str], ptrs: list[int], sizes: list[int]) -> list[bool]:
        self.requests += 1
        request = f"request {self.requests}"
        hashes = [Keys.decode(Keys.encode(key)) for key in keys]
        payload = {"source_control_endpoint": self.source, "block_hashes": hashes}
        action = {"action_type": "kv.fetch", "action_version": "1.0", "payload": payload}
        self.kvcr.submit_hint({"protocol_version": "0.1", "actions": [action]}, request)
        done = self._wait(self.kvcr.deliver(self._blocks(keys, ptrs), request), keys)
        self.kvcr.discard_hint(request)
        return done

    def _blocks(self, keys: list[str], ptrs: list[int]) -> Any:
        size = self.node.page_size
        return {
            Keys.encode(key): [
                self.reference(end_point_name=self.name, element_index=(at - self.base) // size)
            ]
            for key, at in zip(keys, ptrs, strict=True)
        }

    def _wait(self, handle: int, keys: list[str]) -> list[bool]:
        until = time.monotonic() + CALL_S
        while time.monotonic() < until:
            for ended, result in self.kvcr.poll_completed():
                if ended == handle:
                    return [result[Keys.encode(key)].success for key in keys]
            time.sleep(IDLE_S)
        return [False] * len(keys)

    def stop(self) -> None:
        self.ended.set()
        if self.serving.is_alive():
            self.serving.join()
        self.kvcr.close()


ADAPTER = Kvcr
