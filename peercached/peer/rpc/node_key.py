"""The Ed25519 key pair that proves a node's identity.

The public key is part of a member's address, so every node of the cluster knows it. Other members
know the cluster secret too, but cannot make this member's proofs (auth.py). The private key is kept
in state_dir, so a restarted node is recognised. Without a state_dir each start makes a new key.
"""

from __future__ import annotations

import contextlib
import logging
import os
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from peercached.error_text import reason

log = logging.getLogger(__name__)

KEY_BYTES = 32


class NodeKey:
    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key
        self.public = key.public_key().public_bytes_raw()  # KEY_BYTES

    @staticmethod
    def make() -> NodeKey:
        return NodeKey(Ed25519PrivateKey.generate())

    @staticmethod
    def kept(folder: str, node_id: str) -> NodeKey:
        """Loads the key of earlier starts, or makes one. ValueError if the file has no usable
        key."""
        if not folder:
            return NodeKey.make()
        path = Path(folder) / f"identity-{node_id}.key"
        try:
            return NodeKey._load(path)
        except FileNotFoundError:
            made = NodeKey.make()
        except OSError as error:
            raise ValueError(
                f"{path}, the key of this node, cannot be read: {reason(error)}"
            ) from error
        try:
            made._save(path)
        except OSError as error:
            log.warning(
                "cannot save the node key %s: %s (the next start makes another key, and waits "
                "until the cluster knows that this run is over)",
                path,
                reason(error),
            )
        else:
            log.info(
                "created a new node key, %s: if an earlier run used another key, this node waits "
                "until the cluster knows that run is over",
                path,
            )
        return made

    @staticmethod
    def _load(path: Path) -> NodeKey:
        try:
            key = serialization.load_pem_private_key(path.read_bytes(), None)
        except ValueError as error:
            raise _no_key(path) from error
        if not isinstance(key, Ed25519PrivateKey):
            raise _no_key(path)
        return NodeKey(key)

    def _save(self, path: Path) -> None:
        text = self._key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        draft = path.with_suffix(".new")
        with contextlib.suppress(FileNotFoundError):
            draft.unlink()
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)

    def sign(self, text: bytes) -> bytes:
        return self._key.sign(text)

    @staticmethod
    def verify(public: bytes, signature: bytes, text: bytes) -> bool:
        """Whether the private key of `public` signed `text`."""
        try:
            Ed25519PublicKey.from_public_bytes(public).verify(signature, text)
        except (InvalidSignature, ValueError):
            return False
        return True


def _no_key(path: Path) -> ValueError:
    return ValueError(
        f"{path} is no key of a node: put it back from a backup, or delete it. With a new key the "
        "node is a member again once the cluster has found the one with the former key dead"
    )
