"""Objects that cannot be copied or pickled."""

from __future__ import annotations

from typing import NoReturn, SupportsIndex


class NotCopied:
    """The object owns connections, or memory that it shares with the daemon. Copying or pickling it
    raises TypeError."""

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        name = type(self).__name__
        raise TypeError(f"{name} objects cannot be copied or pickled: make one where it is used")
