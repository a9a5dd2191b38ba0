"""Failures between peers. Callers decide by the class; the text is for people."""

from __future__ import annotations

import grpc

_NO_META_PORT = (
    "something else than meta_port answers there, perhaps data_port or metrics_port: name meta_port"
)
# What gRPC says at the first connection to a server that does not fit, and what it means.
_MISFITS = {
    "Socket closed": "it closed the connection, as a peer with TLS does to a caller without: give "
    "both tls_ca, or none",
    "WRONG_VERSION_NUMBER": "this node has TLS and the peer has not: give both tls_ca, or none",
    "Failed parsing HTTP/2": _NO_META_PORT,
    "missing selected ALPN": _NO_META_PORT,
}


class CallFailed(Exception):
    """A call to a peer brought no answer that can be used. Raised as Unreachable, Refused,
    Malformed or AuthError (auth.py)."""


class Refused(CallFailed):
    """The peer answered with an error."""

    def __init__(self, endpoint: str, code: grpc.StatusCode, details: str) -> None:
        super().__init__(sentence(endpoint, code, details))
        self.code = code
        self.details = details


class Malformed(CallFailed):
    """The answer is no message of that call, or has too many parts (parse.py)."""


class Unreachable(CallFailed):
    """The peer gave no answer. Raised as one of the classes below."""


class TimedOut(Unreachable):
    """No answer within `budget_s` seconds. The peer may be healthy but slow in this call."""

    def __init__(self, endpoint: str, budget_s: float, what: str = "answer") -> None:
        super().__init__(f"{endpoint} did not {what} in time")
        self.budget_s = budget_s


class Disconnected(Unreachable):
    """No connection, or it broke."""


class Misfit(Disconnected):
    """Something answers, but this node cannot shake hands with it. The text says what to do."""


class ClosedHere(Unreachable):
    """This end closed the connection: the peer left the view, or we have a new certificate."""


class WrongProcess(Unreachable):
    """Another process than the expected one answers at this address."""


class ReadFailed(Unreachable):
    """The data plane could not read the peer's pages."""


class TokenUnknown(ReadFailed):
    """The data port does not know our token: the peer lives, but dropped us from its view."""


def sentence(endpoint: str, code: grpc.StatusCode, details: str) -> str:
    """A short text for people: gRPC's own details are long and name its source files."""
    short = details.removeprefix("failed to connect to all addresses; last error")
    return f"{endpoint}: {code.name.lower()} {short[:200].strip(' :;')}"


def misfit(details: str) -> str:
    """A likely cause of a failed handshake with a peer that never answered; empty: none known."""
    return next((meaning for said, meaning in _MISFITS.items() if said in details), "")


class Unable(Exception):
    """This node cannot serve a peer's request now; the text says why. The peer may retry."""
