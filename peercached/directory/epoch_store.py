"""Keeps the epochs of cleared namespaces on disk. Without them a restart of the whole cluster would
bring cleared pages back, from pool_file or from the disk tier.

One JSON file, replaced as a whole: {"format": 1, "epochs": {namespace id in hex: epoch}}. Unlike
the stored view it is no mere hint. If it exists but cannot be read, no page of an earlier start may
be served: it may be a cleared one. 64Ki namespaces, the maximum, make 3.5 MB.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from peercached.directory.layout import DIGEST_BYTES

FORMAT = 1


class EpochStore:
    """Stores nothing if `folder` is empty. Not thread safe; load() and save() block on the disk."""

    def __init__(self, folder: str, node_id: str) -> None:
        self.path = Path(folder) / f"epochs-{node_id}.json" if folder else None

    def load(self) -> tuple[dict[bytes, int], str]:
        """Returns the epochs, and why they are unknown ("" if they are known). A missing file means
        that nothing was cleared."""
        if self.path is None:
            return {}, "no state_dir tells which namespaces were cleared"
        try:
            return _epochs_of(json.loads(self.path.read_text())), ""
        except FileNotFoundError:
            return {}, ""
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            return {}, f"{self.path}, which tells what was cleared, cannot be read: {error}"

    def save(self, epochs: dict[bytes, int]) -> None:
        """Writes the epochs durably (fsync). Raises OSError on failure."""
        if self.path is None:
            return
        text = json.dumps({"format": FORMAT, "epochs": {n.hex(): e for n, e in epochs.items()}})
        draft = self.path.with_suffix(".new")
        with draft.open("w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(self.path)
        # Sync the folder, too, or a power cut may bring the older file back.
        folder = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _epochs_of(document: Any) -> dict[bytes, int]:
    if document["format"] != FORMAT:
        raise ValueError(f"format {document['format']} is not {FORMAT}")
    epochs = {bytes.fromhex(text): int(epoch) for text, epoch in document["epochs"].items()}
    for namespace_id, epoch in epochs.items():
        if len(namespace_id) != DIGEST_BYTES or not 0 < epoch < 1 << 62:
            raise ValueError(f"{namespace_id.hex()}: {epoch} is no epoch of a namespace")
    return epochs
