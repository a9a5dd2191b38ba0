"""The contents of `cluster_secret_file`, and the steps that replace a secret.

The file is the secret, without the white space around it. While one secret replaces another, it has
lines of its own for both (docs/security.md, "Replacing the cluster secret"):

    SECRET
    next SECRET      (or: former SECRET)
    digests KEY

A line `open`, or `former open`, stands for no secret, in a cluster that gets its first one.

This node proves the secret of the first line, and accepts the other as well. KEY is the key of the
page digests, 32 hexadecimal digits. It stays when the secret changes: with another key, nodes would
look for the same pages under other digests, and neither find nor remove them.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from peercached.config.private import remedy

SECRET_BYTES_MIN = 16
FILE_BYTES_MAX = 4096
_KEY_BYTES = 16
_ACL = "system.posix_acl_access"
_OPEN = b"open"  # shorter than any secret
_WORDS = (b"next", b"former", b"digests")
_COPY = "copy the file of another node"


class SecretProblem(ValueError):
    """The file cannot be used. The text says why; `remedy` what to do."""

    def __init__(self, text: str, remedy: str) -> None:
        super().__init__(text)
        self.remedy = remedy


def name_of(secret: bytes) -> str:
    """Eight hexadecimal digits that tell secrets apart for people; "none" for no secret."""
    if not secret:
        return "none"
    return hashlib.blake2b(secret, digest_size=4, person=b"peercached name").hexdigest()


@dataclass(frozen=True, slots=True, repr=False)
class ClusterSecret:
    """`value`: the secret that this node proves; empty: there is none. `next` and `former`: the one
    that will replace it, or that it replaces; empty: none. `pinned_key`: the digests' key in the
    file; empty: it comes from `value`."""

    value: bytes
    next: bytes = b""
    former: bytes = b""
    pinned_key: bytes = b""

    def __repr__(self) -> str:
        return "ClusterSecret(...)"

    @property
    def accepted(self) -> tuple[bytes, ...]:
        return (self.value, *self.others)

    @property
    def others(self) -> tuple[bytes, ...]:
        """Secrets that this node accepts and does not prove. An empty one: nodes without a secret
        may join."""
        lines = (self.next, self.former)
        return tuple(b"" if other == _OPEN else other for other in lines if other)

    @property
    def digest_key(self) -> bytes:
        """The 16-byte key of the page digests: equal on all nodes, secret outside the cluster."""
        return self.pinned_key or _digest_key_of(self.value)

    def proof_key(self, secret: bytes) -> bytes:
        """The key of proofs under `secret`. Nodes agree only with equal digest keys."""
        key = self.digest_key
        if key == _digest_key_of(secret):
            return secret
        return hashlib.blake2b(secret, key=key, person=b"peercached proof").digest()

    # --- the steps; SecretProblem if it is not the time for one

    def with_next(self, new: bytes) -> ClusterSecret:
        """First step: `new` is accepted, too."""
        if self.others:
            raise SecretProblem("its secret is being replaced already", "use the next, then drop")
        return replace(self, next=new, pinned_key=self.digest_key)

    def with_next_in_use(self) -> ClusterSecret:
        """Second step: nodes prove the next secret, and accept the former one."""
        if not self.next:
            raise SecretProblem("has no line `next`", "add a secret first")
        return replace(self, value=self.next, next=b"", former=self.value or _OPEN)

    def without_former(self) -> ClusterSecret:
        """Third step: the former secret is not accepted any more."""
        if self.next:
            raise SecretProblem("has a line `next`", "use that secret first, or take the line out")
        if not self.former:
            raise SecretProblem("has no line `former`", "nothing is left to do")
        return replace(self, former=b"")

    # --- the file

    @staticmethod
    def parse(content: bytes) -> ClusterSecret:
        """SecretProblem if it is none."""
        first, *lines = content.strip().split(b"\n")
        parts = [line.split(None, 1) for line in lines]
        if not any(part and part[0] in _WORDS for part in parts):
            if first == _OPEN:
                raise SecretProblem("has the line `open`, and no line `next`", _COPY)
            return ClusterSecret(_long_enough(content.strip(), "the secret"))
        found = {b"": _secret_in(first.strip(), "line 1")}
        for number, part in enumerate(parts, 2):
            if not part:
                continue
            word, rest = part[0], part[1].strip() if len(part) > 1 else b""
            if word not in _WORDS or word in found or rest in found.values():
                raise SecretProblem(
                    f"line {number} does not begin with `next`, `former` or `digests`, or repeats "
                    "another line",
                    _COPY,
                )
            found[word] = rest
            if word == b"digests":
                found[word] = _key(rest, number)
            else:
                _secret_in(rest, f"line {number}")
        if b"digests" not in found:
            raise SecretProblem("has no line `digests`, but others that need it", _COPY)
        next, former = found.get(b"next", b""), found.get(b"former", b"")
        value = b"" if found[b""] == _OPEN else found[b""]
        if not value and not next:
            raise SecretProblem("has the line `open`, and no line `next`", _COPY)
        return ClusterSecret(value, next, former, found[b"digests"])

    def content(self) -> bytes:
        """The file's contents. SecretProblem if these secrets fit no file with lines."""
        lines = [
            self.value or _OPEN,
            b"next " + self.next if self.next else b"",
            b"former " + self.former if self.former else b"",
            b"digests " + self.pinned_key.hex().encode() if self.pinned_key else b"",
        ]
        content = b"".join(line + b"\n" for line in lines if line)
        try:
            fits = len(content) <= FILE_BYTES_MAX and ClusterSecret.parse(content) == self
        except SecretProblem:
            fits = False
        if not fits:
            raise SecretProblem(
                "has a secret of several lines, or one that is too long to stand beside another",
                "replace it with all daemons stopped (docs/security.md)",
            )
        return content


def private_content(path: Path, how: str) -> bytes:
    """The content of a file with a secret. SecretProblem if the daemon cannot use it; `how`: the
    remedy for a file that is too large."""
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise SecretProblem("is not a file", "name a file")
            content = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise SecretProblem(
            f"cannot be read ({error.strerror})", "name a file that the daemon's user may read"
        ) from error
    # A secret that every local user can read authenticates nobody. An ACL cannot hide that: its
    # entry for other users is in the mode. `status` warns of a group with others in it.
    if status.st_mode & 0o007:
        mode = status.st_mode & 0o777
        raise SecretProblem(f"is open to every user (mode {mode:04o})", remedy(path))
    if len(content) > FILE_BYTES_MAX:
        raise SecretProblem(f"has more than {FILE_BYTES_MAX} bytes", how)
    return content


def read_secret(path: Path) -> ClusterSecret:
    """SecretProblem if the daemon cannot use the file."""
    content = private_content(path, _remedy(path))
    try:
        return ClusterSecret.parse(content)
    except SecretProblem as problem:
        raise SecretProblem(str(problem), problem.remedy or _remedy(path)) from problem


def _remedy(path: Path) -> str:
    return f"make one with: openssl rand -hex 32 > {path}; then {remedy(path)}"


def _digest_key_of(secret: bytes) -> bytes:
    return hashlib.blake2b(secret, digest_size=_KEY_BYTES, person=b"peercached keys").digest()


def _long_enough(secret: bytes, where: str, remedy: str = "") -> bytes:
    if len(secret) < SECRET_BYTES_MIN:
        raise SecretProblem(
            f"{where} has {len(secret)} bytes without the white space around them; "
            f"{SECRET_BYTES_MIN} are the least",
            remedy,
        )
    return secret


def _secret_in(line: bytes, where: str) -> bytes:
    return line if line == _OPEN else _long_enough(line, where, _COPY)


def _key(digits: bytes, number: int) -> bytes:
    try:
        key = bytes.fromhex(digits.decode())
    except ValueError:
        key = b""
    if len(key) != _KEY_BYTES:
        raise SecretProblem(
            f"line {number}: `digests` needs {2 * _KEY_BYTES} hexadecimal digits",
            _COPY,
        )
    return key


def _copy_acl(path: Path | None, number: int) -> None:
    """Gives the file `number` the ACL of `path`, or none. A default ACL of the folder would open a
    file with group bits to the users that it names: the mode's group bits are the ACL's mask."""
    acl = b""
    try:
        if path is not None:
            acl = os.getxattr(path, _ACL)
    except OSError as error:
        if error.errno not in (errno.ENODATA, errno.ENOTSUP):
            raise
    try:
        if acl:
            os.setxattr(number, _ACL, acl)
        else:
            os.removexattr(number, _ACL)
    except OSError as error:
        if error.errno not in (errno.ENODATA, errno.ENOTSUP):
            raise


def write_secret(path: Path, secret: ClusterSecret) -> None:
    """Replaces the file atomically, with its owner, mode and ACL; makes a new one with mode 0600
    and no ACL. Behind a symbolic link, the file that it names. OSError or SecretProblem if that
    fails."""
    content = secret.content()
    path = path.resolve()
    number, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    part = Path(name)
    try:
        with os.fdopen(number, "wb") as file:
            if path.exists():
                former = path.stat()
                os.fchown(file.fileno(), former.st_uid, former.st_gid)
                _copy_acl(path, file.fileno())
                os.fchmod(file.fileno(), stat.S_IMODE(former.st_mode))
            else:
                _copy_acl(None, file.fileno())
                os.fchmod(file.fileno(), 0o600)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
