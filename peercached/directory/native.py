"""The functions of peercached._native that the directory uses; tests replace them."""

from __future__ import annotations

from typing import Protocol


class RingTable(Protocol):
    """A ring beside the engine's current one."""

    def split(
        self, items: bytes, stride: int, first_only: bool = False
    ) -> list[tuple[int, bytes]]: ...


class MakeRingTable(Protocol):
    def __call__(self, positions: bytes, nodes: bytes, replicas: int) -> RingTable: ...


class Native(Protocol):
    """See _native.pyi."""

    @property
    def RingTable(self) -> MakeRingTable: ...
    def map_rows(self, rows: bytes, mapping: bytes) -> bytes: ...
    def missing(self, digests: bytes, items: bytes, stride: int) -> bytes: ...
    def standing(self, rows: bytes, changes: bytes) -> bytes: ...
    def split_buckets(self, rows: bytes) -> list[tuple[int, bytes]]: ...
