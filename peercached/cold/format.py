"""The objects of the cold tier, byte by byte (docs/cold-tier.md). Numbers are little-endian.

    pages/NAMESPACE/EPOCH/NAME   payloads, each at a multiple of 64 bytes | index | trailer
    manifests/MS-NAME            the same index alone; or one of pages in an older object, its home
    voids/MS-NAME                a record of removed pages, or a floor: what is below it is void
    sweeper/NUMBER               who sweeps (lease.py)

NAME is a hash of the index, or of the record, in hex. So it is also its check, and two writers of
the same content write one object. MS is the writer's time in milliseconds since 1970.

In sealed objects (sealing.py), each payload and the entries of the index have a nonce before them
and a tag behind them. NAME is a hash of the index before it was sealed. Records are never sealed.
"""

from __future__ import annotations

import hashlib
import re
import struct
from dataclasses import dataclass
from typing import Any

from peercached.cold.sealing import ID_BYTES, SEAL_BYTES, NoSeal, NotOurs
from peercached.directory.layout import DIGEST_BYTES

OBJECT_BYTES_MAX = 64 << 20  # payloads of one object
PAGES_MAX = 1 << 16  # of one object
DIGESTS_MAX = 1 << 16  # of one record
ALIGN_BYTES = 64

_INDEX_MAGIC = b"PCCOLDIX"
_VOID_MAGIC = b"PCCOLDVO"
_VERSION = 1
# Magic, version, number of entries, namespace id, epoch, bytes of all payloads, generation,
# milliseconds, home, key id of the seal.
_INDEX_HEAD = struct.Struct(f"<8sII16sQQIQ16s{ID_BYTES}s")
# Digest, checksum (XXH3-64), offset, length. Checksum and length are of the page before its seal.
ENTRY = struct.Struct("<16sQII")
# Magic, version, number of digests, namespace id, epoch, generation.
_VOID_HEAD = struct.Struct("<8sII16sQI")
_TRAILER = struct.Struct("<Q8s")  # bytes of the index, magic

INDEX_BYTES_MAX = _INDEX_HEAD.size + PAGES_MAX * ENTRY.size + SEAL_BYTES
RECORD_BYTES_MAX = _VOID_HEAD.size + DIGESTS_MAX * DIGEST_BYTES

EPOCH_LIMIT = 1 << 62
GENERATION_LIMIT = (1 << 24) - 2  # the data plane has 24 bits
OWN_HOME = bytes(DIGEST_BYTES)
_NOT_ITS_NAME = "its content is not that of its name"
_LOG_NAME = re.compile(r"(\d{13})-([0-9a-f]{32})")
_OBJECT = re.compile(r"pages/[0-9a-f]{32}/\d{1,19}/([0-9a-f]{32})")


NO_SEAL = NoSeal()


class Mangled(ValueError):
    """The object is not what its name says."""


class OtherKey(Mangled):
    """The object is sealed with another key, or not sealed and should be, or the reverse. Nothing
    of it is verified."""

    def __init__(self, payload_bytes: int) -> None:
        super().__init__("it has the seal of another key")
        self.payload_bytes = payload_bytes


@dataclass(frozen=True, slots=True)
class Index:
    """The pages of one object. `entries`: packed as ENTRY, in the order of the prefix. `home`: the
    name of the object with the payloads; OWN_HOME: this one. `made_ms`: when that one was made; 0:
    the time in the manifest's name."""

    namespace_id: bytes
    epoch: int
    payload_bytes: int
    entries: bytes
    generation: int = 0
    made_ms: int = 0
    home: bytes = OWN_HOME

    @property
    def position(self) -> tuple[int, int]:
        return self.epoch, self.generation

    @property
    def each(self) -> list[bytes]:
        """The entries."""
        return split(self.entries)

    @property
    def digests(self) -> list[bytes]:
        return [entry[:DIGEST_BYTES] for entry in self.each]

    def pack(self, seal: NoSeal = NO_SEAL) -> bytes:
        """As seal.name_of() takes it."""
        count = len(self.entries) // ENTRY.size
        head = (_INDEX_MAGIC, _VERSION, count, self.namespace_id, self.epoch, self.payload_bytes)
        more = (self.generation, self.made_ms, self.home, seal.id)
        return _INDEX_HEAD.pack(*head, *more) + self.entries

    def sealed(self, seal: NoSeal) -> tuple[bytes, bytes]:
        """(name, index) of the object, as they are stored."""
        packed = self.pack(seal)
        name = seal.name_of(self.namespace_id, packed)
        head = packed[: _INDEX_HEAD.size]
        return name, head + seal.seal(self.namespace_id, name, head, self.entries)


@dataclass(frozen=True, slots=True)
class Record:
    """These pages are removed: they are void in objects up to the generation behind this one.
    Without digests it is a floor: all objects of the namespace below this position are void."""

    namespace_id: bytes
    epoch: int
    digests: bytes = b""
    generation: int = 0

    @property
    def floor(self) -> tuple[int, int]:
        """Objects below are void. A removal of an epoch says that this epoch has begun."""
        return self.epoch, 0 if self.digests else self.generation

    @property
    def upto(self) -> int:
        """Its pages are void in objects up to this generation."""
        return self.generation + 1

    @property
    def each(self) -> list[bytes]:
        return [
            self.digests[at : at + DIGEST_BYTES] for at in range(0, len(self.digests), DIGEST_BYTES)
        ]

    def pack(self) -> bytes:
        count = len(self.digests) // DIGEST_BYTES
        head = (_VOID_MAGIC, _VERSION, count, self.namespace_id, self.epoch, self.generation)
        return _VOID_HEAD.pack(*head) + self.digests


def split(entries: bytes) -> list[bytes]:
    return [entries[at : at + ENTRY.size] for at in range(0, len(entries), ENTRY.size)]


def name_of(packed: bytes) -> bytes:
    return hashlib.blake2b(packed, digest_size=DIGEST_BYTES).digest()


def object_path(namespace_id: bytes, epoch: int, name: bytes) -> str:
    return f"pages/{namespace_id.hex()}/{epoch}/{name.hex()}"


def of_object_path(path: str) -> bytes | None:
    """The name; None: it is a foreign object."""
    found = _OBJECT.fullmatch(path)
    return None if found is None else bytes.fromhex(found[1])


def log_path(folder: str, time_ms: int, name: bytes) -> str:
    """The name of a manifest or a record of removals."""
    return f"{folder}/{time_ms:013d}-{name.hex()}"


def of_log_path(folder: str, path: str) -> tuple[int, bytes] | None:
    """(milliseconds, name); None: it is a foreign object."""
    found = _LOG_NAME.fullmatch(path.removeprefix(f"{folder}/"))
    return None if found is None else (int(found[1]), bytes.fromhex(found[2]))


def trailer_of(index: bytes) -> bytes:
    """The end of an object, behind its index."""
    return _TRAILER.pack(len(index), _INDEX_MAGIC)


def parse_index(packed: bytes, name: bytes, seal: NoSeal = NO_SEAL) -> Index:
    """Raises Mangled."""
    head = _head_of(packed, _INDEX_HEAD, _INDEX_MAGIC)
    _, _, count, namespace_id, epoch, payload_bytes, generation, made_ms, home, key_id = head
    stored = packed[_INDEX_HEAD.size :]
    if key_id != seal.id:
        raise OtherKey(min(payload_bytes, OBJECT_BYTES_MAX))
    if not 0 < count <= PAGES_MAX or len(stored) != count * ENTRY.size + seal.extra_bytes:
        raise Mangled(f"an index of {count} pages has {len(packed)} bytes")
    if payload_bytes > OBJECT_BYTES_MAX or not _is_position(epoch, generation):
        raise Mangled(f"an index of {payload_bytes} bytes of payload and position {head[4:7]}")
    try:
        entries = seal.open(namespace_id, name, packed[: _INDEX_HEAD.size], stored)
    except NotOurs as error:
        raise Mangled(str(error)) from error
    if seal.name_of(namespace_id, packed[: _INDEX_HEAD.size] + entries) != name:
        raise Mangled(_NOT_ITS_NAME)
    for _, _, offset, length in ENTRY.iter_unpack(entries):
        if length == 0 or offset + length + seal.extra_bytes > payload_bytes:
            raise Mangled(f"a page of {length} bytes at {offset} of {payload_bytes}")
    return Index(namespace_id, epoch, payload_bytes, entries, generation, made_ms, home)


def parse_record(packed: bytes, name: bytes) -> Record:
    """Raises Mangled."""
    head = _head_of(packed, _VOID_HEAD, _VOID_MAGIC)
    if name_of(packed) != name:
        raise Mangled(_NOT_ITS_NAME)
    _, _, count, namespace_id, epoch, generation = head
    digests = packed[_VOID_HEAD.size :]
    if count > DIGESTS_MAX or len(digests) != count * DIGEST_BYTES:
        raise Mangled(f"a record of {count} pages has {len(packed)} bytes")
    if not _is_position(epoch, generation):
        raise Mangled(f"a record of position {epoch}, {generation}")
    return Record(namespace_id, epoch, digests, generation)


def _is_position(epoch: int, generation: int) -> bool:
    return epoch < EPOCH_LIMIT and generation < GENERATION_LIMIT


def _head_of(packed: bytes, layout: struct.Struct, magic: bytes) -> tuple[Any, ...]:
    if len(packed) < layout.size:
        raise Mangled(f"it has {len(packed)} bytes")
    head = layout.unpack_from(packed)
    if head[0] != magic or head[1] != _VERSION:
        raise Mangled(f"it begins with {head[0]!r}, version {head[1]}")
    return head
