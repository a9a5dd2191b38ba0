"""The result for one page."""

from enum import IntEnum


class Status(IntEnum):
    """The result for one page. Truthy only for `ok`: the page was set, fetched or removed.

    Values below 128 are the daemon's (docs/protocol.md, "Page statuses"); the others are the
    client's.
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

    def __str__(self) -> str:
        return self.name

    def __format__(self, spec: str) -> str:
        return format(self.name, spec)


# Indexed by the reply's status byte. A status that only a newer daemon knows becomes `error`.
STATUS_OF_BYTE = [Status.error] * 256
for _status in Status:
    STATUS_OF_BYTE[_status] = _status
