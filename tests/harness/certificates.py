"""Certificates for clusters of real daemons: a, b, c, ... on 127.0.0.1, .2, .3, ..."""

from __future__ import annotations

from pathlib import Path

from peercached.peer.rpc.authority import Authority, files_of
from peercached.peer.rpc.certificates import Files


class Certificates:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self._authority = Authority.make()
        self._authority.save(folder / "ca.crt", folder / "ca.key")

    def issue(self, node_id: str, host: str = "") -> Files:
        """Issues the node's certificate, or replaces it. It is for `host`, else for the node's
        address."""
        files = files_of(self.folder, node_id)
        certificate, key = Path(files.certificate), Path(files.key)
        host = host or f"127.0.0.{ord(node_id) - ord('a') + 1}"
        there = certificate.exists()
        self._authority.issue(certificate, key, node_id, [host], replace=there)
        return files

    def options(self, node_id: str) -> dict[str, str]:
        """TLS options of the daemon. Keeps existing files, because a daemon may be reading them."""
        files = files_of(self.folder, node_id)
        if not Path(files.certificate).exists():
            self.issue(node_id)
        return {"tls_ca": files.ca, "tls_cert": files.certificate, "tls_key": files.key}
