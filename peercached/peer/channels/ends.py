"""The ends of channels. Only the data plane knows what is in them (native/transfer/), but for the
number of the rail at their beginning."""

from __future__ import annotations

import struct

from peercached.directory.layout import check_packed

_U32 = struct.Struct("<I")
_CLOSED_MAX = 4096
RAILS_MAX = 64


def rail_of(end: bytes) -> int:
    """The rail of a packed end or answer, in its owner's numbering. Raises ValueError."""
    if len(end) < _U32.size:
        raise ValueError(f"the end of a channel has {len(end)} bytes")
    rail: int = _U32.unpack_from(end)[0]
    if rail >= RAILS_MAX:
        raise ValueError(f"the end of a channel has rail {rail}; {RAILS_MAX} are the limit")
    return rail


def check_closed(numbers: bytes) -> None:
    """Raises ValueError unless these are packed u32 numbers of channels, not too many."""
    check_packed(numbers, _U32.size, "closed channels")
    if len(numbers) > _CLOSED_MAX * _U32.size:
        raise ValueError(
            f"{len(numbers) // _U32.size} closed channels; {_CLOSED_MAX} are the limit"
        )
