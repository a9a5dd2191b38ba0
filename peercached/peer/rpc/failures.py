"""What goes wrong between peers. Code goes by the class; the text is for people."""

from __future__ import annotations


class Unreachable(Exception):
    """The peer gave no answer. Raised as one of the classes below."""


class TimedOut(Unreachable):
    """No answer within `budget_s`. The peer may be well, and slow in this one thing."""

    def __init__(self, endpoint: str, budget_s: float, what: str = "answer") -> None:
        super().__init__(f"{endpoint} did not {what} in time")
        self.budget_s = budget_s


class Disconnected(Unreachable):
    """No connection, or it broke."""


class ClosedHere(Unreachable):
    """This end closed the connection: the peer is out of the view, or we have a new certificate."""


class WrongProcess(Unreachable):
    """Another process answers there than the one that was called."""


class ReadFailed(Unreachable):
    """The data plane could not read the peer's pages."""


class TokenUnknown(ReadFailed):
    """The data port does not know our token, so the peer lives: it had us out of its view."""


class Unable(Exception):
    """This node cannot do now what a peer asks; the text says why. The peer may ask again."""
