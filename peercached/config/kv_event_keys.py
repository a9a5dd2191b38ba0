"""The CURVE keys of the ports for events of pages (docs/routers.md).

They come from the cluster secret, so all nodes have the same ones, and no file has to be copied to
routers: `peercachectl kv-events --keys` prints what a subscriber needs.
"""

from __future__ import annotations

from dataclasses import dataclass

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

KEY_BYTES = 32


@dataclass(frozen=True, slots=True, repr=False)
class CurveKeys:
    """A Curve25519 pair, 32 bytes each, as ZMQ's CURVE has it."""

    public: bytes
    private: bytes


def server_keys(secret: bytes) -> CurveKeys:
    return _derived(secret, b"peercached kv-events server")


def client_keys(secret: bytes) -> CurveKeys:
    return _derived(secret, b"peercached kv-events client")


def _derived(secret: bytes, label: bytes) -> CurveKeys:
    private = HKDF(SHA256(), KEY_BYTES, salt=None, info=label).derive(secret)
    public = X25519PrivateKey.from_private_bytes(private).public_key()
    return CurveKeys(public.public_bytes(Encoding.Raw, PublicFormat.Raw), private)
