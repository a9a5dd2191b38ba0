"""Parses messages of peers, requests and answers alike.

A part of a list takes two bytes in a message, but fifty once it is parsed, and a turn of a Python
loop after that. 64 MiB of parts would take gigabytes, and stop the daemon for half a minute. So the
parts are counted before a message is parsed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError

# More than any message of a cluster has: twice as many as it can have namespaces, or nodes.
PARTS_MAX = 1 << 17
_PART_BYTES_MIN = 2
# The fewest bytes of one number in a packed list.
_NUMBER_BYTES_MIN = {FieldDescriptor.TYPE_FIXED32: 4, FieldDescriptor.TYPE_FIXED64: 8}
_VARINT_BITS = 70
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


@cache
def parser(message: type[Any]) -> Callable[[bytes], Any]:
    """A parser that returns a ValueError for bytes that are no such message, or have too many
    parts. It does not raise it, because gRPC would log a traceback and lose the reason."""
    descriptor = message.DESCRIPTOR

    def parsed(data: bytes) -> Any:
        try:
            if len(data) > PARTS_MAX * _PART_BYTES_MIN:
                _count(memoryview(data), descriptor, PARTS_MAX)
            return message.FromString(data)
        except DecodeError as error:
            return ValueError(f"{len(data)} bytes that are no message of this call: {error}")
        except ValueError as error:
            return error

    return parsed


def _count(data: memoryview, descriptor: Descriptor, left: int) -> int:
    """Returns how many more parts a message may have after `data`. ValueError if it has too many.
    Stops where the bytes make no sense: the parser reports that."""
    at = 0
    try:
        while at < len(data):
            tag, at = _varint(data, at)
            left -= 1
            kind = tag & 7
            if kind == _VARINT:
                _, at = _varint(data, at)
            elif kind == _BYTES:
                size, at = _varint(data, at)
                field = descriptor.fields_by_number.get(tag >> 3)
                if field is not None and field.message_type is not None:
                    if _has_lists(field.message_type):
                        left = _count(data[at : at + size], field.message_type, left)
                elif field is not None and field.is_packed:
                    left -= size // _NUMBER_BYTES_MIN.get(field.type, 1)
                at += size
            else:
                at += {_FIXED64: 8, _FIXED32: 4}.get(kind, 0)
            if left < 0:
                raise ValueError(f"{descriptor.name} has more than {PARTS_MAX} parts")
    except IndexError:
        pass
    return left


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value, at
        shift += 7
        if shift >= _VARINT_BITS:
            raise IndexError


@cache
def _has_lists(descriptor: Descriptor) -> bool:
    return any(
        field.is_repeated or (field.message_type is not None and _has_lists(field.message_type))
        for field in descriptor.fields
    )
