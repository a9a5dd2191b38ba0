"""The pages that a restart kept: the `recovery` part of the status document and its sentences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from peercached.component import Component, Stats
from peercached.directory.epoch_store import EpochStore
from peercached.health import Say, kinds

_REASONS = {
    "damaged_payloads": "had lost their bytes",
    "damaged_headers": "had a damaged header",
    "unfinished": "were being set when the daemon ended",
    "cleared": "are of namespaces that were cleared since",
    "removed": "were removed since",
    "duplicates": "were there twice",
}
_DAMAGE = ("damaged_payloads", "damaged_headers")


def recovery_of(stats: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of admin.status.Recovery."""
    return dict(stats.get("recovery", {}))


def sentences(recovery: Mapping[str, Any]) -> Iterator[str]:
    """For the log, at start."""
    if not recovery.get("file"):
        return
    if recovery["why_fresh"]:
        yield f"pool_file {recovery['file']} was emptied: {recovery['why_fresh']}"
        return
    yield (
        f"pool_file {recovery['file']}: {recovery['pages']} pages ({recovery['bytes']} bytes) are "
        f"served again, verified in {recovery['seconds']:.3f} s"
    )
    for reason, count in recovery["dropped"].items():
        if count:
            yield f"pool_file {recovery['file']}: {count} pages dropped, they {_REASONS[reason]}"


class RecoveryStatus(Component):
    def __init__(self, epochs: EpochStore) -> None:
        self._epochs = epochs

    def sections(self, stats: Stats) -> dict[str, Any]:
        return {"recovery": recovery_of(stats)}

    def say(self, say: Say, stats: Stats) -> None:
        say_recovery(say, recovery_of(stats), self._epochs.problem)


def say_recovery(say: Say, recovery: Mapping[str, Any], epochs_problem: str) -> None:
    if recovery.get("why_fresh"):
        say(
            kinds.POOL_EMPTIED,
            f"The pool started empty: the pages in {recovery['file']} could not be used and were "
            f"deleted, because {recovery['why_fresh']}.",
            "The pages cannot be restored. Keep pool_size, node id, cluster secret and state_dir: "
            "after each change of them the file is emptied again.",
        )
    dropped = recovery.get("dropped", {})
    damaged = sum(dropped.get(reason, 0) for reason in _DAMAGE) + recovery.get("damaged_spans", 0)
    if damaged:
        say(
            kinds.POOL_FILE_DAMAGED,
            f"{damaged} pages or spans in {recovery['file']} were damaged while no daemon ran; "
            "they were dropped.",
            "Look for memory errors of this machine (edac-util, mcelog, dmesg), and for others "
            "that write to the file.",
        )
    if epochs_problem:
        say(
            kinds.CLEARS_NOT_KEPT,
            f"Namespace clears cannot be written to state_dir: {epochs_problem}. A restart may "
            "bring cleared pages back.",
            "Make room in state_dir, or make it writable; it is tried again with the next clear.",
        )
