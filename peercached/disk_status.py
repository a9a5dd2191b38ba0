"""What an operator should know of the disk tier, in sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from peercached.health import Say, kinds

_LOOK = "Look at the disk (dmesg, smartctl, df) and at who else uses it."


def say_disk(
    say: Say, path: str, disk: Mapping[str, Any], quotas: Sequence[Mapping[str, Any]]
) -> None:
    """`disk` and `quotas`: sections of the status document; `disk` is empty without a tier."""
    if not disk:
        return
    if disk.get("state") == "read_only":
        say(
            kinds.DISK_READ_ONLY,
            f"The disk tier at {path} writes nothing: {disk.get('why')}. Pages that are evicted "
            "are lost; those on the disk are still read.",
            f"{_LOOK} It tries again by itself.",
        )
    elif disk.get("state") == "stalled":
        say(
            kinds.DISK_STALLED,
            f"The disk at {path} does not answer: {disk.get('why')}. Pages on it are misses.",
            _LOOK,
        )
    if disk.get("skipped_full"):
        say(
            kinds.DISK_TOO_SLOW,
            f"{disk['skipped_full']} pages were set faster than the disk at {path} takes them, and "
            "are in memory only.",
            "A faster disk keeps more of them; sets never wait for it.",
        )
    if disk.get("skipped_large"):
        say(
            kinds.DISK_PAGES_TOO_LARGE,
            f"{disk['skipped_large']} pages are too large for the disk tier at {path}, and are in "
            f"memory only: it takes pages of {disk.get('page_bytes_max', 0)} bytes at most.",
            "Make disk_size larger: from 16 GiB on, pages of 64 MiB are taken.",
        )
    if disk.get("reads_corrupt") or disk.get("recovery_corrupt"):
        say(
            kinds.DISK_DAMAGED,
            f"{disk.get('reads_corrupt', 0)} pages read from {path}, and "
            f"{disk.get('recovery_corrupt', 0)} found at start, were torn or damaged; they were "
            "dropped.",
            "A few after a crash or a power cut are normal; more mean a failing disk.",
        )
    if disk.get("recovery_emptied"):
        say(
            kinds.DISK_EMPTIED,
            f"The disk tier at {path} began empty: what was there could not be used, because "
            f"{disk['recovery_emptied']}.",
            "Nothing, if that was meant; else bring back the state_dir that goes with it.",
        )
    if disk.get("recovery_rejected"):
        say(
            kinds.DISK_FOREIGN_FILES,
            f"{disk['recovery_rejected']} segment files in {path} are of another daemon or "
            "version, or destroyed; they were deleted.",
            "Nothing to do, unless it happens again: then the disk is failing.",
        )
    _say_quotas(say, path, quotas)


def _say_quotas(say: Say, path: str, quotas: Sequence[Mapping[str, Any]]) -> None:
    skipping = [one for one in quotas if one.get("disk_skipped")]
    if not skipping:
        return
    worst = max(skipping, key=lambda one: one["disk_skipped"])
    others = f" ({len(skipping) - 1} other namespaces likewise)" if len(skipping) > 1 else ""
    say(
        kinds.DISK_QUOTA,
        f"{worst['disk_skipped']} pages of namespace {worst['namespace']} were not written to "
        f"{path}: it holds {worst['disk_bytes']} bytes there and may hold "
        f"{worst['disk_quota_bytes']}{others}.",
        "Raise its second share in namespace_quotas if the disk is to keep more of it.",
    )
