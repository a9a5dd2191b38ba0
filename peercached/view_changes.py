"""Puts a view in force and tells each part of the node that follows views."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Protocol

from peercached.directory.placement import Change, Placement
from peercached.membership import View

log = logging.getLogger(__name__)


class Follower(Protocol):
    def view_changed(self, change: Change) -> None:
        """The engine has the new view's ring."""


class ViewChanges:
    """On the event loop's thread."""

    def __init__(self, placement: Placement, followers: Sequence[Follower]) -> None:
        self._placement = placement
        self._followers = followers

    def apply(self, view: View) -> None:
        change = self._placement.apply(view, time.monotonic())
        for follower in self._followers:
            follower.view_changed(change)
        names = ", ".join(member.node_id for member in view.members)
        log.info("new view %d with %d members: %s", view.counter, len(view.members), names)
