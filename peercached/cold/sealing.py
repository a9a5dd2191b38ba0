"""Seals of objects: keys from the file `cold_key_file` (docs/cold-tier.md, "Sealing").

    master key       content of the file
    key id           HKDF(master key, "id"), 16 bytes: tells objects of another master key apart
    namespace key    HKDF(master key, "namespace" | namespace id)
    name key         HKDF(namespace key, "name"), for the names of objects (keyed BLAKE2b)
    index key        HKDF(namespace key, "index" | object's name)
    page key         HKDF(namespace key, "pages" | epoch)

HKDF is that of RFC 5869 with SHA-256. The ciphers are AES-256-GCM. Here the entries of an index are
sealed; the data plane seals pages (native/engine/storage/page_seal.h). An object's name is a hash
of its pages before the seal. So two writers of the same pages still write one object. Each draws
its own nonces. A page key may seal 2^32 pages.
"""

from __future__ import annotations

import hashlib
import os
import struct

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

ID_BYTES = 16
NONCE_BYTES = 12
SEAL_BYTES = NONCE_BYTES + 16  # nonce and tag
_KEY_BYTES = 32
_NAME_BYTES = 16


class NotOurs(ValueError):
    """The seal is broken, or it is of another object."""


class NoSeal:
    """Objects that are not sealed. The interface of Sealing, too."""

    id = bytes(ID_BYTES)
    extra_bytes = 0  # a sealed page or list of entries is longer by so much

    def name_of(self, namespace_id: bytes, packed: bytes) -> bytes:
        """The name of the object with this index."""
        del namespace_id
        return hashlib.blake2b(packed, digest_size=_NAME_BYTES).digest()

    def seal(self, namespace_id: bytes, name: bytes, head: bytes, entries: bytes) -> bytes:
        """The entries of an index as they are stored behind its head."""
        del namespace_id, name, head
        return entries

    def open(self, namespace_id: bytes, name: bytes, head: bytes, stored: bytes) -> bytes:
        """The reverse. NotOurs if this head and these entries are not those of that object."""
        del namespace_id, name, head
        return stored

    def of_pages(self, namespace_id: bytes, epoch: int) -> bytes:
        """The seal of pages, as the data plane takes it; empty: none."""
        del namespace_id, epoch
        return b""


class Sealing(NoSeal):
    """Thread safe. `master`: the master key."""

    extra_bytes = SEAL_BYTES

    def __init__(self, master: bytes) -> None:
        self._master = master
        self.id = _derived(master, b"id", ID_BYTES)

    def __repr__(self) -> str:
        return "Sealing(...)"

    def name_of(self, namespace_id: bytes, packed: bytes) -> bytes:
        key = _derived(self._of_namespace(namespace_id), b"name")
        return hashlib.blake2b(packed, digest_size=_NAME_BYTES, key=key).digest()

    def seal(self, namespace_id: bytes, name: bytes, head: bytes, entries: bytes) -> bytes:
        nonce = os.urandom(NONCE_BYTES)
        return nonce + self._index_cipher(namespace_id, name).encrypt(nonce, entries, head)

    def open(self, namespace_id: bytes, name: bytes, head: bytes, stored: bytes) -> bytes:
        nonce, sealed = stored[:NONCE_BYTES], stored[NONCE_BYTES:]
        try:
            return self._index_cipher(namespace_id, name).decrypt(nonce, sealed, head)
        except (InvalidTag, ValueError) as error:  # ValueError: it is too short
            raise NotOurs("its seal is broken") from error

    def of_pages(self, namespace_id: bytes, epoch: int) -> bytes:
        packed = struct.pack("<Q", epoch)
        key = _derived(self._of_namespace(namespace_id), b"pages" + packed)
        return key + namespace_id + packed

    def _of_namespace(self, namespace_id: bytes) -> bytes:
        return _derived(self._master, b"namespace" + namespace_id)

    def _index_cipher(self, namespace_id: bytes, name: bytes) -> AESGCM:
        return AESGCM(_derived(self._of_namespace(namespace_id), b"index" + name))


def _derived(key: bytes, label: bytes, key_bytes: int = _KEY_BYTES) -> bytes:
    return HKDF(SHA256(), key_bytes, salt=None, info=b"peercached cold " + label).derive(key)
