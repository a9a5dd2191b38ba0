"""A small certificate authority, for tests and for sites without their own."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from peercached.peer.rpc.certificates import NODE_URI, Files

CA_DAYS = 3650
NODE_DAYS = 365
# A host with a slow clock must not find a new certificate "not yet valid".
BACKDATED = timedelta(minutes=10)


class Authority:
    """A key and its certificate. OSError if a file cannot be written or already exists."""

    def __init__(self, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
        self._certificate = certificate
        self._key = key

    @staticmethod
    def make(name: str = "peercached", days: int = CA_DAYS) -> Authority:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"{name} authority")])
        built = (
            _builder(subject, subject, key, timedelta(days=days))
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs=True), critical=True)
        )
        return Authority(built.sign(key, hashes.SHA256()), key)

    @staticmethod
    def load(certificate: Path, key: Path) -> Authority:
        """ValueError if a file cannot be parsed, the certificate is no authority's, or the key is
        not that of the certificate."""
        loaded = serialization.load_pem_private_key(key.read_bytes(), None)
        if not isinstance(loaded, ec.EllipticCurvePrivateKey):
            raise ValueError(f"{key} is no key that this command has made")
        found = x509.load_pem_x509_certificate(certificate.read_bytes())
        if found.public_key() != loaded.public_key():
            raise ValueError(f"{key} is not the key of {certificate}")
        if not _is_authority(found):
            raise ValueError(f"{certificate} is no authority's certificate")
        return Authority(found, loaded)

    def save(self, certificate: Path, key: Path) -> None:
        _write(key, _key_pem(self._key), 0o600)
        _write(certificate, _pem(self._certificate), 0o644)

    def issue(
        self,
        certificate: Path,
        key: Path,
        node_id: str,
        hosts: Sequence[str],
        lifetime: timedelta = timedelta(days=NODE_DAYS),
        replace: bool = False,
    ) -> None:
        """Writes a node's key, and its certificate for both ends of a connection. `replace`
        overwrites existing files, for a rotation."""
        own = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, node_id[:64])])
        names: list[x509.GeneralName] = [_name(host) for host in hosts]
        names.append(x509.UniformResourceIdentifier(NODE_URI + node_id))
        issuer = self._certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier)
        built = (
            _builder(subject, self._certificate.subject, own, lifetime)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs=False), critical=True)
            .add_extension(
                x509.ExtendedKeyUsage(
                    [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
                ),
                critical=False,
            )
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(issuer.value),
                critical=False,
            )
        )
        made = built.sign(self._key, hashes.SHA256())
        _write(key, _key_pem(own), 0o600, replace)
        _write(certificate, _pem(made), 0o644, replace)


def files_of(folder: Path, node_id: str) -> Files:
    """The paths that `peercachectl certs` uses for a node's files."""
    return Files(*(str(folder / name) for name in ("ca.crt", f"{node_id}.crt", f"{node_id}.key")))


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, lifetime: timedelta
) -> x509.CertificateBuilder:
    now = datetime.now(timezone.utc)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(min(now, now + lifetime) - BACKDATED)
        .not_valid_after(now + lifetime)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _usage(signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        key_cert_sign=signs,
        crl_sign=signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _is_authority(certificate: x509.Certificate) -> bool:
    try:
        found = certificate.extensions.get_extension_for_class(x509.BasicConstraints)
    except x509.ExtensionNotFound:
        return False
    return found.value.ca


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _write(path: Path, content: bytes, mode: int, replace: bool = False) -> None:
    """Writes atomically. FileExistsError if the file exists, unless `replace`."""
    if not replace:
        # Reserve the name, so that only one of two concurrent writers succeeds.
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode))
    part = path.with_name(f".{path.name}.part")
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb") as file:
        os.fchmod(file.fileno(), mode)
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
