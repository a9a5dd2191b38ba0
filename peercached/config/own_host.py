"""The address of this node that its peers connect to.

Peers are told an address, never a name: each host has its own idea of a name. Of the addresses of
`host`, one that this host has is told. An address that means "this host" everywhere is told only
where all heads have such addresses. Debian gives each host's own name the address 127.0.1.1 in
/etc/hosts, so a name may have no other address at its own host.
"""

from __future__ import annotations

from collections.abc import Sequence

from peercached.config.problem import Problem
from peercached.config.schema import Config
from peercached.config.values import split_address
from peercached.error_text import reason
from peercached.names import addresses, is_here, is_literal, is_loopback, socket_for

# The address of a documentation network (RFC 5737). Nothing is sent to it.
_SOMEWHERE = "192.0.2.1"


class NoOwnHost(RuntimeError):
    """This host has no address for the key `host`, perhaps only for now."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(str(problem))
        self.problem = problem


def own_host(config: Config) -> tuple[str, str]:
    """(address, how it was found; empty if it is the configured one). Asks the resolver, so it may
    block for some seconds. NoOwnHost if there is none."""
    heads = config.discovery_addr or config.etcd_endpoints
    if is_literal(config.host):
        return addresses(config.host)[0], ""
    if not heads and config.host == "auto":
        return "127.0.0.1", "default: no discovery_addr and no etcd_endpoints, so no peers"
    if config.host == "auto":
        return _towards(heads, "auto", "default: ")
    try:
        found = addresses(config.host)
    except OSError as error:
        raise _none(
            config.host,
            f"does not resolve ({error})",
            "mend the name (DNS or /etc/hosts), or set host to an address of this host",
        ) from error
    here = [address for address in found if is_here(address)]
    if not here:
        raise _none(
            config.host,
            f"resolves to {', '.join(found)}, which this host does not have",
            "mend the name (DNS or /etc/hosts), or set host to an address of this host",
        )
    far = [address for address in here if not is_loopback(address)]
    if not far and heads:
        return _towards(heads, config.host, f"{config.host} is {here[0]} here, so ")
    return (far or here)[0], f"{config.host} resolves to it"


def _towards(heads: Sequence[str], given: str, why: str) -> tuple[str, str]:
    """This host's address on the route to the first head that is elsewhere."""
    own, problems = "", []
    for head in heads:
        host = split_address(head)[0]
        try:
            found = addresses(host)
            far = [address for address in found if not is_loopback(address)]
            if far:
                return _route(far[0]), f"{why}the address that routes to {head}"
            if not is_literal(host) and host != "localhost":
                own = own or f"{head} is {found[0]} here"  # this host's name for itself
        except OSError as error:
            problems.append(f"{head}: {reason(error)}")
    if own:
        try:
            return _route(_SOMEWHERE), f"{why}the address of the default route ({own})"
        except OSError as error:
            problems.append(f"{own}, and there is no default route ({error.strerror})")
    if problems:
        raise _none(
            given,
            f"found no address of this host that routes to a head ({'; '.join(problems)})",
            "set host to the address that peers should use, or mend the names or routes",
        )
    return "127.0.0.1", f"{why}the address that routes to {heads[0]}"


def _none(given: str, what: str, remedy: str) -> NoOwnHost:
    return NoOwnHost(Problem("host", what, remedy, value=given))


def _route(address: str) -> str:
    with socket_for(address) as probe:
        probe.connect((address, 9))  # on UDP, connect only asks the routing table
        return str(probe.getsockname()[0])
