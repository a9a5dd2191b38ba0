"""The token of routers: HKDF-SHA256 (RFC 5869) of the cluster secret, under a label of its own.

It tells nothing about the secret, and changes with it. While one secret replaces another, the
tokens of both are accepted, as the secrets are.
"""

from __future__ import annotations

import hmac

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from peercached.config.cluster_secret import ClusterSecret

HEADER = "authorization"
SCHEME = "Bearer "
_LABEL = b"peercached router token 1"
_TOKEN_BYTES = 32
# Longer ones are refused unread.
_HEADER_CHARACTERS_MAX = 256


def token_of(secret: bytes) -> str:
    """The token, in hexadecimal digits. `secret` is not empty."""
    return HKDF(SHA256(), _TOKEN_BYTES, salt=None, info=_LABEL).derive(secret).hex()


class Tokens:
    """Checks tokens against the secrets that are accepted now. On the event loop's thread."""

    def __init__(self) -> None:
        self._known: dict[bytes, str] = {}  # by secret; deriving one takes microseconds
        self.refused = 0

    def why_not(self, authorization: str | None, cluster: ClusterSecret) -> str:
        """Why this header is refused, for people; empty: it is admitted. A cluster without a
        secret, or one that still accepts nodes without, admits everybody."""
        accepted = cluster.accepted
        if not all(accepted):
            return ""
        if not authorization:
            self.refused += 1
            return (
                f"this call has no header `{HEADER}: {SCHEME}TOKEN`: `peercachectl router-token` "
                "prints the token"
            )
        given = authorization[:_HEADER_CHARACTERS_MAX].encode(errors="replace")
        self._known = {one: self._known.get(one) or token_of(one) for one in accepted}
        expected = [(SCHEME + token).encode() for token in self._known.values()]
        if sum(hmac.compare_digest(given, one) for one in expected):  # compares with all of them
            return ""
        self.refused += 1
        if not given.strip() or given.strip() == SCHEME.strip().encode():
            return (
                f"the header `{HEADER}` has an empty token: see what `peercachectl router-token` "
                "prints on a node"
            )
        return (
            f"the token in `{HEADER}` is not of this cluster's secret: `peercachectl router-token` "
            "prints the right one"
        )
