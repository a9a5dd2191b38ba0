"""The endpoints that discovery_addr stands for.

A name stands for all its addresses, and they may change: the DNS name of all pods of a set, or of
all hosts of a rack. The names are asked for in the background. Nobody waits for them: a name
without an answer stands for itself, as a head that cannot be reached, with the reason. While the
resolver fails, the last answer stays.

An address that means "this host" stands for this node, if the port is its own. All else that leads
back to this node, such as a forwarder, is known only by the answer (Membership.led_home).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from functools import partial

from peercached.config.values import split_address
from peercached.membership.view import join_host_port
from peercached.names import is_here, is_literal, is_loopback, look_up
from peercached.peer.rpc.tasks import Tasks, retried

log = logging.getLogger(__name__)

# Addresses of one name that are heads: every node sends heartbeats to each head.
ADDRESSES_MAX = 8
LOOK_AGAIN_S = 10.0
UNKNOWN_AGAIN_S = 1.0


class Heads:
    """On the event loop's thread."""

    def __init__(
        self,
        discovery_addr: Sequence[str],
        host: str,
        port: int,
        found: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        """`host` and `port` are this node's own. `found`: the addresses of some names."""
        self._entries = [split_address(entry) for entry in discovery_addr]
        self._host, self._port = host, port
        self._found = {host: [host] for host, _ in self._entries if is_literal(host)}
        self._found.update({name: list(addresses) for name, addresses in (found or {}).items()})
        self._why: dict[str, str] = {}
        self._news = asyncio.Event()
        self._tasks = Tasks()

    def start(self) -> None:
        for name in dict.fromkeys(host for host, _ in self._entries):
            if name not in self._found:
                follow = partial(self._follow, name)
                self._tasks.spawn(retried(f"looking up {name}", follow, UNKNOWN_AGAIN_S))

    def stop(self) -> None:
        self._tasks.cancel()

    async def changed(self) -> None:
        """Waits until a name has other addresses than at the last call. For one caller."""
        await self._news.wait()
        self._news.clear()

    async def _follow(self, name: str) -> None:
        while True:
            try:
                found = sorted(await look_up(name))
            except OSError as error:
                if self._why.get(name) != str(error):
                    log.warning("the name %s in discovery_addr does not resolve: %s", name, error)
                self._why[name] = str(error)
            else:
                self._why.pop(name, None)
                if found[:ADDRESSES_MAX] != self._found.get(name):
                    log.info("the name %s in discovery_addr is %s", name, ", ".join(found))
                    self._found[name] = found[:ADDRESSES_MAX]
                    self._news.set()
            await asyncio.sleep(LOOK_AGAIN_S if name in self._found else UNKNOWN_AGAIN_S)

    # --- what they are now

    def places(self) -> dict[str, int]:
        """For each endpoint, in order, its place in discovery_addr. This node's own endpoint is as
        it tells it to its peers."""
        found: dict[str, int] = {}
        for place, (host, port) in enumerate(self._entries):
            for address in self._found.get(host, [host]):
                own = port == self._port and self._is_own(address)
                found.setdefault(join_host_port(self._host if own else address, port), place)
        return found

    @property
    def own_rank(self) -> int | None:
        """This node's place in discovery_addr, as far as it is known yet."""
        return self.places().get(join_host_port(self._host, self._port))

    def _is_own(self, address: str) -> bool:
        if address == self._host:
            return True
        literal = is_literal(address) and is_literal(self._host)
        return literal and not is_loopback(self._host) and is_here(address)

    def problem(self, endpoint: str) -> str:
        """Why nobody can connect to that endpoint yet: it is a name. Empty if it is an address."""
        host = split_address(endpoint)[0]
        if host in self._found or not any(host == name for name, _ in self._entries):
            return ""
        return f"{endpoint}: the name {host} " + (
            f"does not resolve ({self._why[host]})" if host in self._why else "is not resolved yet"
        )

    def name_of(self, endpoint: str) -> str:
        """The name behind an endpoint, which its certificate has; empty if there is none."""
        place = self.places().get(endpoint)
        host = self._entries[place][0] if place is not None else ""
        return "" if is_literal(host) else host
