"""What a restart kept, in words: the `recovery` part of the status document and its sentences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

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


def told(recovery: Mapping[str, Any]) -> Iterator[str]:
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


def say_recovery(say: Any, recovery: Mapping[str, Any], epochs_problem: str) -> None:
    if recovery.get("why_fresh"):
        say(
            "info",
            f"The pool began empty: what was in {recovery['file']} could not be used, because "
            f"{recovery['why_fresh']}.",
            "Nothing, if that was meant; else bring the old setting back before the next restart.",
        )
    dropped = recovery.get("dropped", {})
    damaged = sum(dropped.get(reason, 0) for reason in _DAMAGE) + recovery.get("damaged_spans", 0)
    if damaged:
        say(
            "warning",
            f"{damaged} pages or spans in {recovery['file']} were damaged while no daemon ran; "
            "they were dropped.",
            "Look for memory errors of this machine (edac-util, mcelog, dmesg), and for others "
            "that write to the file.",
        )
    if epochs_problem:
        say(
            "error",
            f"Which namespaces were cleared cannot be kept in state_dir: {epochs_problem}. After "
            "a restart cleared pages may come back.",
            "Make room in state_dir, or make it writable; it is tried again with the next clear.",
        )


def say_removals(say: Any, removals: Mapping[str, Any]) -> None:
    if removals.get("waiting"):
        say(
            "error",
            f"{removals['waiting']} removals could not be written down in state_dir: "
            f"{removals['problem']}. After a restart those pages may come back.",
            "Make room in state_dir, or make it writable; it is tried again each second.",
        )
    if removals.get("unsure"):
        missing = "; ".join(f"{who}: {why}" for who, why in sorted(removals["missing"].items()))
        say(
            "warning",
            f"{removals['unsure']} pages are being removed since {removals['unsure_s']:.0f} s, and "
            f"may still be found somewhere: {missing}. Until then they cannot be set.",
            "Bring that node back, or end its daemon; of a host that is off or gone for good: "
            "peercachectl forget NODE.",
        )
    if removals.get("held_back_for"):
        names = ", ".join(removals["held_back_for"])
        say(
            "warning",
            "Pages of an earlier start are held back: some may have been removed since, and of "
            f"those who know ({names}) not enough have answered.",
            "Start the daemons of those nodes; of one that is gone for good: peercachectl forget "
            "NODE.",
        )
    if removals.get("store_problem"):
        say(
            "error",
            "What other nodes have missed cannot be kept in state_dir: "
            f"{removals['store_problem']}.",
            "Make room in state_dir, or make it writable.",
        )
