"""Reads all events that parts tell (news.py), and lets the parts that they concern act on them."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from peercached.config import Config
from peercached.data_plane.make import set_quotas
from peercached.directory.placement import Change, Placement
from peercached.history.departures import Departures
from peercached.history.findings import FindingEvents
from peercached.membership import View
from peercached.news import Event, News
from peercached.observe import log as log_lines
from peercached.peer.channels.data_links import DataLinks
from peercached.peer.membership.cluster import Cluster, JoinRefused, ViewFound
from peercached.peer.removals.catch_up import RemovalCatchUp
from peercached.peer.removals.member import Forgotten
from peercached.peer.rpc.auth import SecretChanged, Sessions
from peercached.peer.rpc.client import Peers, SessionBegun, SessionLost
from peercached.peer.rpc.failure_detector import FailureDetector, Suspected
from peercached.peer.rpc.tls import Tls
from peercached.peer.server.server import PeerServer
from peercached.phase import Phase
from peercached.routers.server import RouterServer
from peercached.service.settings import ConfigChanged

if TYPE_CHECKING:
    from peercached._native import Engine

log = logging.getLogger(__name__)


class Follower(Protocol):
    def view_changed(self, change: Change) -> None:
        """The engine has the new view's ring."""


@dataclass(eq=False)
class Reactions:
    """On the event loop's thread. `followers` are told each view in this order."""

    _engine: Engine
    _news: News
    _phase: Phase
    _placement: Placement
    _tls: Tls | None
    _peers: Peers
    _sessions: Sessions
    _failures: FailureDetector
    _links: DataLinks
    _cluster: Cluster
    _departures: Departures
    _removal_catch_up: RemovalCatchUp
    _server: PeerServer
    _routers: RouterServer
    _finding_events: FindingEvents
    _followers: Sequence[Follower]

    def __post_init__(self) -> None:
        self._news.read_by(self)

    def take(self, event: Event) -> None:
        match event:
            case ViewFound(view):
                self.apply(view)
            case JoinRefused(reason):
                self._refused(reason)
            case SessionBegun(link):
                self._links.open(link)
                self._removal_catch_up.session_begun(link)
            case SessionLost(link):
                self._links.close(link)
            case SecretChanged():
                self._secret_changed()
            case Suspected():
                self._finding_events.look_soon()
            case Forgotten(node_id):
                self._departures.forget(node_id)
            case ConfigChanged(config):
                self._config_changed(config)
            case _:
                raise TypeError(f"no part takes {event}")

    def apply(self, view: View) -> None:
        """Puts a view in force."""
        change = self._placement.apply(view, time.monotonic())
        for follower in self._followers:
            follower.view_changed(change)
        self._peers.view_changed(change, self._cluster.endpoints())
        names = ", ".join(member.node_id for member in view.members)
        log.info("new view %d with %d members: %s", view.counter, len(view.members), names)

    def _refused(self, reason: str) -> None:
        if not self._phase.starting:
            log.error(
                "the cluster refuses this node: %s (fix that, then restart this daemon)", reason
            )

    def _secret_changed(self) -> None:
        dropped = self._peers.secret_changed()
        self._sessions.secret_changed()
        # Heads put such a peer out of the view. With etcd it stays, and nobody else might call it.
        self._failures.ask(dropped)

    def _config_changed(self, config: Config) -> None:
        log_lines.set_up(config.log_level, config.log_format)
        set_quotas(self._engine, config)
        self._engine.set_patience(config.publish_timeout_ms)
        if self._tls is not None and self._tls.mode != config.tls_mode:
            self._tls.mode = config.tls_mode
            self._peers.tls_mode_changed()
            self._server.tls_mode_changed()
            self._routers.tls_mode_changed()
