"""What became of one page."""

from enum import IntEnum


class Status(IntEnum):
    """True exactly when the page was set, was got, or was there to be removed.

    The daemon's numbers (docs/protocol.md, "Page statuses"), and from 128 on the client's own.
    """

    ok = 0
    absent = 1
    stale = 2
    deadline = 3
    suspect = 4
    error = 5
    no_space = 6
    too_large = 7
    bad_key = 8
    bad_region = 9
    bad_range = 10
    duplicate_key = 11
    length_mismatch = 12
    region_lost = 13
    draining = 14
    removing = 15
    no_daemon = 128

    def __bool__(self) -> bool:
        return self is Status.ok


# Indexed by the byte in the reply: a status that a newer daemon knows and we do not is an error.
STATUS_OF_BYTE = [Status.error] * 256
for _status in Status:
    STATUS_OF_BYTE[_status] = _status
