"""Keeps the epochs of cleared namespaces on disk. Without them a restart of the whole cluster would
bring cleared pages back, from pool_file or from the disk tier.

One JSON file, replaced as a whole: {"format": 1, "epochs": {namespace id in hex: epoch}}. Unlike
the stored view it is no mere hint. If it exists but cannot be read, no page of an earlier start may
be served: it may be a cleared one. 64Ki namespaces, the maximum, make 3.5 MB.
"""

from __future__ import annotations

from typing import Any

from peercached.directory.layout import DIGEST_BYTES
from peercached.state_file import StateFile, Unreadable

FORMAT = 1


class EpochStore:
    """Stores nothing if `folder` is empty. Not thread safe; load() and save() block on the disk."""

    def __init__(self, folder: str, node_id: str) -> None:
        self._file = StateFile(folder, f"epochs-{node_id}.json", FORMAT)
        self.path = self._file.path

    def load(self) -> tuple[dict[bytes, int], str]:
        """Returns the epochs, and why they are unknown ("" if they are known). A missing file means
        that nothing was cleared."""
        if self.path is None:
            return {}, "no state_dir tells which namespaces were cleared"
        try:
            return self._file.load(_epochs_of) or {}, ""
        except Unreadable as error:
            return {}, f"{error}, and it tells which namespaces were cleared"

    @property
    def problem(self) -> str:
        """Why the last save failed; empty if it did not."""
        return self._file.problem

    def save(self, epochs: dict[bytes, int]) -> None:
        """Writes the epochs durably."""
        document = {"epochs": {n.hex(): e for n, e in epochs.items()}}
        self._file.save(document, "a restart may bring cleared pages back", durable=True)


def _epochs_of(document: Any) -> dict[bytes, int]:
    epochs = {bytes.fromhex(text): int(epoch) for text, epoch in document["epochs"].items()}
    for namespace_id, epoch in epochs.items():
        if len(namespace_id) != DIGEST_BYTES or not 0 < epoch < 1 << 62:
            raise ValueError(f"{namespace_id.hex()}: {epoch} is no epoch of a namespace")
    return epochs
