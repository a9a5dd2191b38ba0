"""Findings of the disk tier, in sentences for an operator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from peercached.component import Component, Stats
from peercached.health import Say, kinds
from peercached.health.recent_growth import DAY_S, Lately

_LOOK = "Look at the disk (dmesg, smartctl, df) and at who else uses it."


class Promotes(Protocol):
    """Pages that holders bring from disk for their readers (peer/directory/promotes.py)."""

    asked: int
    served: int
    refused: int


class DiskStatus(Component):
    """`path`: the key disk_path."""

    def __init__(self, path: str, promotes: Promotes) -> None:
        self._path = path
        self._promotes = promotes
        self._lately = Lately()

    def sections(self, stats: Stats) -> dict[str, Any]:
        """An empty section without a disk tier."""
        disk: dict[str, Any] = dict(stats.get("disk", {}))
        if disk:
            disk["path"] = self._path
            disk["promotes_asked"] = self._promotes.asked
            disk["promotes_served"] = self._promotes.served
            disk["promotes_refused"] = self._promotes.refused
        return {"disk": disk}

    def say(self, say: Say, stats: Stats) -> None:
        quotas = stats.get("quotas", [])
        say_disk(say, self._path, stats.get("disk", {}), quotas, self._lately)


def say_disk(
    say: Say,
    path: str,
    disk: Mapping[str, Any],
    quotas: Sequence[Mapping[str, Any]],
    lately: Lately,
) -> None:
    """`disk` and `quotas`: sections of the status document; `disk` is empty without a tier."""
    if not disk:
        return
    if disk.get("state") == "read_only":
        say(
            kinds.DISK_READ_ONLY,
            f"The disk tier at {path} takes no new pages: {disk.get('why')}. Evicted pages are "
            "lost; stored pages are still read.",
            f"{_LOOK} It tries again by itself.",
        )
    elif disk.get("state") == "stalled":
        say(
            kinds.DISK_STALLED,
            f"The disk at {path} does not answer: {disk.get('why')}. Pages on it are misses.",
            _LOOK,
        )
    if skipped := lately.grown("full", disk.get("skipped_full", 0)):
        say(
            kinds.DISK_TOO_SLOW,
            f"The disk at {path} is too slow: {skipped} pages were not written to it in the last "
            "hour and are in memory only.",
            "Use a faster disk to keep more pages. Sets never wait for the disk.",
        )
    if skipped := lately.grown("large", disk.get("skipped_large", 0), DAY_S):
        say(
            kinds.DISK_PAGES_TOO_LARGE,
            f"In the last day, {skipped} pages were too large for the disk tier at {path} and are "
            f"in memory only. It takes pages of {disk.get('page_bytes_max', 0)} bytes at most.",
            "Make disk_size larger: from 16 GiB on, pages of 64 MiB are taken.",
        )
    corrupt = lately.grown("corrupt", disk.get("reads_corrupt", 0), DAY_S)
    found_corrupt = lately.grown("found corrupt", disk.get("recovery_corrupt", 0), DAY_S)
    if corrupt or found_corrupt:
        say(
            kinds.DISK_DAMAGED,
            f"In the last day, {corrupt} pages read from {path}, and {found_corrupt} found at "
            "start, were torn or damaged; they were dropped.",
            "A few after a crash or a power cut are normal; more mean a failing disk.",
        )
    if disk.get("recovery_emptied"):
        say(
            kinds.DISK_EMPTIED,
            f"The disk tier at {path} started empty: its pages could not be used and were deleted, "
            f"because {disk['recovery_emptied']}.",
            "The pages cannot be restored. Keep the present state_dir with this folder: with "
            "another one, the folder is emptied again.",
        )
    if disk.get("recovery_rejected"):
        say(
            kinds.DISK_FOREIGN_FILES,
            f"Deleted {disk['recovery_rejected']} segment files in {path}: they belong to another "
            "daemon or version, or are damaged.",
            "Nothing to do, unless it happens again: then the disk is failing.",
        )
    _say_quotas(say, path, quotas, lately)


def _say_quotas(say: Say, path: str, quotas: Sequence[Mapping[str, Any]], lately: Lately) -> None:
    """Names no namespace: the sentence goes to the dashboard, and that is open to all."""
    skipping = [one for one in quotas if one.get("disk_skipped") and one.get("disk_quota_bytes")]
    skipped = lately.grown("quotas", sum(one["disk_skipped"] for one in skipping))
    if not skipped:
        return
    worst = max(skipping, key=lambda one: one["disk_skipped"])
    more = len(skipping) - 1
    others = f" So did {more} other namespace{'s' if more > 1 else ''}." if more else ""
    say(
        kinds.DISK_QUOTA,
        f"A namespace reached its disk quota: {skipped} pages were not written to {path} in the "
        f"last hour ({worst['disk_bytes']} of {worst['disk_quota_bytes']} bytes used).{others}",
        "peercachectl status --json names it (quotas). To keep more of its pages on disk, raise "
        "its disk share in namespace_quotas (the number after the colon in "
        "pattern=share:disk_share).",
    )
