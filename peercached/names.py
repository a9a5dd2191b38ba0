"""Addresses of host names.

The system's resolver is asked, in the order of nsswitch.conf: /etc/hosts comes first. It may take
many seconds, and nothing can interrupt it. So each name is asked for in a thread of its own, once
at a time, and callers wait for it as long as they like.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import threading
from concurrent.futures import Future
from concurrent.futures import TimeoutError as TimedOut

from peercached.error_text import reason
from peercached.timeout import within

# A resolver tries each server twice for 5 s.
LOOKUP_S = 10.0

_asking: dict[str, Future[list[str]]] = {}
_lock = threading.Lock()


def is_literal(host: str) -> bool:
    """Whether `host` is an address, not a name."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def is_loopback(address: str) -> bool:
    """Whether the address means "this host" on every host: 127.0.0.0/8 or ::1."""
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback


def is_here(address: str) -> bool:
    """Whether this host has that address."""
    try:
        with socket_for(address) as probe:
            probe.bind((address, 0))
    except OSError:
        return False
    return True


def socket_for(address: str) -> socket.socket:
    """A UDP socket of that address's family."""
    return socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM)


def _ask(host: str) -> Future[list[str]]:
    with _lock:
        future = _asking.get(host)
        if future is None:
            future = _asking[host] = Future()
            future.set_running_or_notify_cancel()  # nobody who waits can cancel it for the others
            # A daemon thread: the process must be able to end before the resolver answers.
            thread = threading.Thread(
                target=_look_up, args=(host, future), name="resolve", daemon=True
            )
            try:
                thread.start()
            except RuntimeError as error:
                del _asking[host]  # or all later callers would wait for this answer
                raise OSError(f"no thread can ask the resolver: {error}") from error
    return future


def _look_up(host: str, future: Future[list[str]]) -> None:
    try:
        entries = socket.getaddrinfo(
            host, None, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG
        )
        found = list(dict.fromkeys(str(entry[4][0]) for entry in entries))
        error = None
    except Exception as wrong:
        found, error = [], OSError(reason(wrong))
    with _lock:
        del _asking[host]
    if error is None:
        future.set_result(found)
    else:
        future.set_exception(error)


def _late(host: str, wait_s: float) -> OSError:
    return OSError(f"the resolver has not answered for {wait_s:g} s")


def addresses(host: str, wait_s: float = LOOKUP_S) -> list[str]:
    """The addresses of a name, in the resolver's order; of an address, itself. Blocks. OSError with
    the reason if there are none."""
    if is_literal(host):
        return [str(ipaddress.ip_address(host))]
    try:
        return _ask(host).result(wait_s)
    except TimedOut:
        raise _late(host, wait_s) from None


async def look_up(host: str, wait_s: float = LOOKUP_S) -> list[str]:
    """Like addresses(), for the event loop."""
    if is_literal(host):
        return [str(ipaddress.ip_address(host))]
    try:
        return await within(wait_s, asyncio.wrap_future(_ask(host)))
    except asyncio.TimeoutError:
        raise _late(host, wait_s) from None
