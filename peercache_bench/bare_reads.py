"""Bare RDMA READs over as much memory as the gets read: the limit of this machine.

ib_read_bw reads one page again and again, so both ends work from the CPU caches. Real pages come
from memory and go to memory.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from peercache_bench.perftest import Port
from peercached import _native


class BareReads:
    """READs of one size from `source` into `dest`. Both are writable, equally large, and divided
    among the (source, reader) pairs. RuntimeError if a port refuses."""

    def __init__(
        self,
        pairs: Sequence[tuple[Port, Port]],
        source: memoryview,
        dest: memoryview,
        read_bytes: int,
        queue_pairs: int,
    ) -> None:
        self._reads_each = len(dest) // read_bytes // len(pairs)
        self._bytes = self._reads_each * read_bytes * len(pairs)
        share = self._reads_each * read_bytes
        self._wires = [
            _native.BareReads(
                *(f"{holder.device}:{holder.number}", holder.gid_index),
                *(f"{reader.device}:{reader.number}", reader.gid_index),
                source[at : at + share],
                dest[at : at + share],
                read_bytes,
                queue_pairs,
            )
            for at, (holder, reader) in zip(range(0, self._bytes, share), pairs, strict=True)
        ]

    def gbps(self) -> float:
        """GB/s (1e9 bytes) of reading everything once, on all pairs at the same time."""
        with ThreadPoolExecutor(len(self._wires)) as pool:
            took = pool.map(lambda wire: float(wire.read(self._reads_each)), self._wires)
            return self._bytes / 1e9 / max(took)
