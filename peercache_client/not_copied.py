"""Objects of which there must be no second one."""

from __future__ import annotations

from typing import NoReturn, SupportsIndex


class NotCopied:
    """It owns connections, or memory that it shares with the daemon. TypeError for copies and
    pickles."""

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        name = type(self).__name__
        raise TypeError(f"{name} objects cannot be copied or pickled: make one where it is used")
