"""The directory's part of the status document and its health findings."""

from __future__ import annotations

import time
from typing import Any

from peercached.component import Component, Stats
from peercached.directory.owner import OwnerSide
from peercached.directory.pending import PendingBatches
from peercached.directory.publisher import Publisher
from peercached.health import Say, kinds
from peercached.health.lately import Lately
from peercached.peer.directory.lookups import Lookups
from peercached.peer.directory.streams import Streams

# A stream that is out of sync for less than this is usually just starting: no finding.
BEHIND_S = 10.0
UNREACHED_S = 600.0


class DirectoryStatus(Component):
    def __init__(
        self,
        publisher: Publisher,
        pending: PendingBatches,
        streams: Streams,
        lookups: Lookups,
        owner_side: OwnerSide,
    ) -> None:
        self._publisher = publisher
        self._pending = pending
        self._streams = streams
        self._lookups = lookups
        self._owner_side = owner_side
        self._behind_since: dict[str, float] = {}
        self._lately = Lately()

    def sections(self, stats: Stats) -> dict[str, Any]:
        del stats
        return {"streams": self._streams.status()}

    def control_counters(self, stats: Stats) -> dict[str, int]:
        lookups = self._lookups.counters
        return {
            "publish_batches": self._publisher.batches,
            "publish_timeouts": self._pending.timeouts,
            "publish_unreached": self._pending.unreached,
            "lookups": lookups.lookups,
            "lookup_rpcs": lookups.asked,
            "lookups_fell_through": lookups.fell_through,
            "lookups_overdue": lookups.overdue,
            "foreign_holders": lookups.foreign_holders,
            "stream_gaps": self._owner_side.gaps,
            "events_dropped": int(stats.get("events_dropped", 0)),
        }

    def say(self, say: Say, stats: Stats) -> None:
        self._say_behind(say)
        unreached = self._lately.grown("unreached", self._pending.unreached, UNREACHED_S)
        if unreached:
            say(
                kinds.SET_WITHOUT_OWNERS,
                f"No owner could be reached for {unreached} set batches. Their records follow when "
                "an owner is back. Until then other nodes cannot find these pages.",
            )
        shard = stats.get("shard", {})
        if full := self._lately.grown("full", shard.get("full", 0)):
            say(
                kinds.DIRECTORY_FULL,
                f"The directory shard refused {full} records in the last hour because it was full: "
                f"{shard.get('entries')} of {shard.get('capacity_entries')} are in use.",
                "Raise directory_capacity; until then those pages are found only on their holder.",
            )
        refusals = {
            s["owner"]: s["refused_full"] for s in self._streams.status() if s["refused_full"]
        }
        if refused := self._lately.grown("refused", sum(refusals.values())):
            say(
                kinds.RECORDS_REFUSED,
                f"Owners refused {refused} records of this node in the last hour because their "
                f"directory shards were full: {', '.join(sorted(refusals))}.",
                "Raise directory_capacity on all nodes; until then some of this node's pages are "
                "found only here.",
            )
        if dropped := self._lately.grown("dropped", stats.get("events_dropped", 0)):
            say(
                kinds.REQUESTS_DROPPED,
                f"The control plane was overloaded: {dropped} requests from the data plane were "
                "dropped in the last hour.",
                "Give the daemon more CPU. If it continues, report it with this status.",
            )

    def _say_behind(self, say: Say) -> None:
        now = time.monotonic()
        streams = self._streams.status()
        behind = {stream["owner"]: stream for stream in streams if stream["state"] != "live"}
        self._behind_since = {owner: self._behind_since.get(owner, now) for owner in behind}
        for owner, since in self._behind_since.items():
            problem = behind[owner]["problem"]
            if problem or now - since > BEHIND_S:
                say(
                    kinds.RECORDS_WAIT,
                    f"Owner {owner} does not have all records of this node "
                    f"({behind[owner]['state']}{': ' + problem if problem else ''}).",
                    "Pages set here are still found through their other owners. If this lasts, "
                    f"check the daemon on {owner}.",
                    about=owner,
                )
