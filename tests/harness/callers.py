"""Callers of a whole daemon's meta port, legitimate or not, and the certificates they present."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import grpc

from harness.links import link_from
from harness.loop_node import LoopNode
from peercached.membership import NodeAddress
from peercached.peer.rpc.auth import Secret
from peercached.peer.rpc.authority import Authority, files_of
from peercached.peer.rpc.certificates import Files
from peercached.peer.rpc.client import PeerLink
from peercached.peer.rpc.tls import Tls

HOST = "127.0.0.1"
SECRET = b"the cluster's own secret"


class Site:
    """A certificate authority and the certificates that it has issued."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self.authority = Authority.make()
        self.authority.save(folder / "ca.crt", folder / "ca.key")

    def files(
        self, node_id: str, host: str = HOST, lifetime: timedelta = timedelta(days=9)
    ) -> Files:
        files = files_of(self.folder, node_id)
        certificate, key = Path(files.certificate), Path(files.key)
        there = certificate.exists()
        self.authority.issue(certificate, key, node_id, [host], lifetime, replace=there)
        return files

    def tls(self, node_id: str) -> Tls:
        return Tls(self.files(node_id), node_id, HOST)

    def trust(self, other: Site) -> None:
        """Trusts `other`'s authority as well as our own."""
        ca = self.folder / "ca.crt"
        ca.write_bytes(ca.read_bytes() + (other.folder / "ca.crt").read_bytes())

    def take_over(self, other: Site, node_id: str) -> None:
        """Replaces the node's files by ones that `other`'s authority issued."""
        made = other.files(node_id)
        for here, there in zip(
            (files_of(self.folder, node_id).key, files_of(self.folder, node_id).certificate),
            (made.key, made.certificate),
            strict=True,
        ):
            Path(here).write_bytes(Path(there).read_bytes())


class Shown:
    """Credentials that a caller presents. They may be invalid, so it does not use Tls, which would
    refuse to start with most of them."""

    generation = 1
    calls, calls_plain = True, False

    def __init__(self, files: Files, trusts: str = "", anonymous: bool = False) -> None:
        ca, certificate, key = (
            Path(path).read_bytes() for path in (trusts or files.ca, files.certificate, files.key)
        )
        self._credentials = (
            grpc.ssl_channel_credentials(ca)
            if anonymous
            else grpc.ssl_channel_credentials(ca, key, certificate)
        )

    def channel_credentials(self) -> grpc.ChannelCredentials:
        return self._credentials


def link_to(
    node: LoopNode, tls: Any = None, node_id: str = "b", host: str = HOST, secret: bytes = SECRET
) -> PeerLink:
    own = NodeAddress(node_id, 5, host, 1, 2)
    endpoint = node.daemon.placement.own.address.endpoint
    return link_from(own, endpoint, Secret(secret), tls)


def stranger(node: LoopNode, secret: bytes = b"") -> PeerLink:
    """A link to `node` from a caller that is in no view."""
    return link_to(node, node_id="stranger", secret=secret)


def security(node: LoopNode) -> dict[str, Any]:
    found: dict[str, Any] = node.daemon.status.document()["security"]
    return found
