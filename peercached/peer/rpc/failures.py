"""Failures between peers. Callers decide by the class; the text is for people."""

from __future__ import annotations


class Unreachable(Exception):
    """The peer gave no answer. Raised as one of the classes below."""


class TimedOut(Unreachable):
    """No answer within `budget_s` seconds. The peer may be healthy but slow in this call."""

    def __init__(self, endpoint: str, budget_s: float, what: str = "answer") -> None:
        super().__init__(f"{endpoint} did not {what} in time")
        self.budget_s = budget_s


class Disconnected(Unreachable):
    """No connection, or it broke."""


class ClosedHere(Unreachable):
    """This end closed the connection: the peer left the view, or we have a new certificate."""


class WrongProcess(Unreachable):
    """Another process than the expected one answers at this address."""


class ReadFailed(Unreachable):
    """The data plane could not read the peer's pages."""


class TokenUnknown(ReadFailed):
    """The data port does not know our token: the peer lives, but dropped us from its view."""


class Unable(Exception):
    """This node cannot serve a peer's request now; the text says why. The peer may retry."""
