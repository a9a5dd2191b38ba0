"""Reads a node's three TLS files, and explains in one sentence why they cannot be used.

During a rotation a file may be half written, or not fit its key yet. A set of files is used only if
peers would accept it, so a mistake in a rotation disconnects no node.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from peercached.peer.rpc.watched_files import FileProblem

# The prefix of a URI among a certificate's names; the node id follows.
NODE_URI = "peercached://node/"
FILE_BYTES_MAX = 1 << 20
_DOMAIN_LABELS_MIN = 3  # so that `*.com` is not valid for example.com


class CertificateProblem(FileProblem):
    """These TLS files cannot be used."""


@dataclass(frozen=True, slots=True)
class Files:
    """Paths: the authority's certificates, this node's chain, its private key; all PEM."""

    ca: str
    certificate: str
    key: str


@dataclass(frozen=True, slots=True)
class Credentials:
    """The files' contents. `names`: the certificate's hosts, addresses and URIs."""

    ca: bytes
    certificate: bytes
    key: bytes
    names: tuple[str, ...]
    not_before: datetime
    not_after: datetime  # the earliest expiry from this node's certificate up to its authority's

    def __repr__(self) -> str:
        return f"Credentials({self.names}, until {self.not_after:%Y-%m-%d})"


def covers(names: Iterable[str], host: str) -> bool:
    """Whether a certificate with these names is valid for `host` (RFC 6125: `*` is one label)."""
    wanted = _plain(host)
    for name in names:
        if _plain(name) == wanted:
            return True
        head, _, domain = name.lower().partition(".")
        labels = wanted.split(".")
        if head == "*" and len(labels) >= _DOMAIN_LABELS_MIN and domain == ".".join(labels[1:]):
            return True
    return False


def _plain(host: str) -> str:
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return host.lower().removesuffix(".")


def misfit(names: Iterable[str], node_id: str, host: str) -> str:
    """Why a certificate with these names does not fit that node; empty if it fits.

    The host must be among the names. If the certificate names nodes (NODE_URI), the node id must be
    one of them. Otherwise only the cluster secret protects the node id.
    """
    names = tuple(names)
    if not covers(names, host):
        return f"the certificate is for {_listed(names)}, not for host {host}"
    nodes = [name.removeprefix(NODE_URI) for name in names if name.startswith(NODE_URI)]
    if nodes and node_id not in nodes:
        return f"the certificate is node {_listed(nodes)}'s, not {node_id}'s"
    return ""


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names)[:200] or "nobody"


def read(files: Files, node_id: str, host: str, now: datetime | None = None) -> Credentials:
    """Reads the files. CertificateProblem if this node cannot serve with them."""
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import serialization

    now = now or datetime.now(timezone.utc)
    ca, chain, key = (_bytes_of(path) for path in (files.ca, files.certificate, files.key))

    def certificates(pem: bytes, path: str) -> list[x509.Certificate]:
        try:
            return x509.load_pem_x509_certificates(pem)
        except ValueError as error:
            raise CertificateProblem(f"{path} has no PEM certificate ({error})") from error

    authorities = certificates(ca, files.ca)
    own = certificates(chain, files.certificate)
    try:
        private = serialization.load_pem_private_key(key, None)
    except (ValueError, TypeError) as error:
        raise CertificateProblem(
            f"{files.key} has no PEM private key without a password ({error})"
        ) from error
    form = (serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    if private.public_key().public_bytes(*form) != own[0].public_key().public_bytes(*form):
        raise CertificateProblem(f"{files.key} is not the key of {files.certificate}")

    # Walk the chain from this node's certificate up to one in tls_ca.
    path, trusted = [own[0]], False
    while not trusted and len(path) <= len(own):
        for issuer in (*authorities, *own[1:]):
            try:
                path[-1].verify_directly_issued_by(issuer)
            except (ValueError, TypeError, InvalidSignature):
                continue
            path.append(issuer)
            trusted = issuer in authorities
            break
        else:
            break
    if not trusted:
        raise CertificateProblem(
            f"{files.certificate} is not signed by an authority in {files.ca}: peers would "
            "refuse it"
        )
    for one in path:
        name = one.subject.rfc4514_string()
        if now > one.not_valid_after_utc:
            raise CertificateProblem(
                f"the certificate {name} has expired ({day(one.not_valid_after_utc)}): renew it"
            )
        if now < one.not_valid_before_utc:
            raise CertificateProblem(
                f"the certificate {name} is valid only from {day(one.not_valid_before_utc)} on: "
                "compare this host's clock"
            )
    names = _names(own[0])
    wrong = misfit(names, node_id, host)
    if wrong:
        raise CertificateProblem(f"{files.certificate}: {wrong}: peers would refuse this node")
    return Credentials(
        ca,
        chain,
        key,
        names,
        own[0].not_valid_before_utc,
        min(one.not_valid_after_utc for one in path),
    )


def _names(certificate: object) -> tuple[str, ...]:
    from cryptography import x509

    assert isinstance(certificate, x509.Certificate)
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return ()
    return (
        *found.get_values_for_type(x509.DNSName),
        *(str(address) for address in found.get_values_for_type(x509.IPAddress)),
        *found.get_values_for_type(x509.UniformResourceIdentifier),
    )


def _bytes_of(path: str) -> bytes:
    try:
        with Path(path).open("rb") as file:
            content = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise CertificateProblem(f"{path} cannot be read ({error.strerror})") from error
    if len(content) > FILE_BYTES_MAX:
        raise CertificateProblem(f"{path} has more than {FILE_BYTES_MAX} bytes")
    return content


def day(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M} UTC"
