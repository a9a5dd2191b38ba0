"""The file of the cluster secret, and the steps that replace a secret."""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from peercached.config.cluster_secret import (
    FILE_BYTES_MAX,
    ClusterSecret,
    SecretProblem,
    read_secret,
    write_secret,
)

OLD, NEW = b"the old secret of all", b"the new secret of all"
ONE = ClusterSecret(OLD)


def test_a_plain_file_is_the_secret_without_the_white_space_around_it() -> None:
    assert ClusterSecret.parse(b"\n " + OLD + b"\n\n") == ONE
    two_lines = OLD + b"\nand more of it"
    assert ClusterSecret.parse(two_lines) == ClusterSecret(two_lines)


def test_each_step_is_in_the_file_and_the_key_of_the_digests_stays() -> None:
    added = ONE.with_next(NEW)
    used = added.with_next_in_use()
    dropped = used.without_former()
    assert (added.value, added.others) == (OLD, (NEW,))
    assert (used.value, used.others) == (NEW, (OLD,))
    assert (dropped.value, dropped.others) == (NEW, ())
    again = dropped.with_next(b"yet another secret").with_next_in_use().without_former()
    for step in (added, used, dropped, again):
        assert ClusterSecret.parse(step.content()) == step
        assert step.digest_key == ONE.digest_key


def test_steps_in_another_order_are_refused() -> None:
    added = ONE.with_next(NEW)
    steps: list[tuple[Callable[[], ClusterSecret], str]] = [
        (lambda: added.with_next(b"a third secret of all"), "replaced already"),
        (ONE.with_next_in_use, "no line `next`"),
        (added.with_next_in_use().with_next_in_use, "no line `next`"),
        (added.without_former, "has a line `next`"),
        (ONE.without_former, "no line `former`"),
    ]
    for step, reason in steps:
        with pytest.raises(SecretProblem, match=reason):
            step()


def test_proofs_under_a_secret_agree_only_if_the_digests_have_the_same_key() -> None:
    added = ONE.with_next(NEW)
    used = added.with_next_in_use()
    assert ONE.proof_key(OLD) == added.proof_key(OLD) == used.proof_key(OLD) == OLD
    assert added.proof_key(NEW) == used.proof_key(NEW) == used.without_former().proof_key(NEW)
    assert ClusterSecret(NEW).proof_key(NEW) != used.proof_key(NEW), "its digests differ"


KEY = b"digests " + b"0f" * 16


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ([b"short"], "has 5 bytes"),
        ([OLD, b"next " + NEW], "has no line `digests`"),
        ([OLD, b"next short", KEY], "line 2 has 5 bytes"),
        ([OLD, b"next " + OLD, KEY], "line 2"),
        ([OLD, b"next " + NEW, b"next " + NEW, KEY], "line 3"),
        ([OLD, b"next " + NEW, b"formerly " + OLD, KEY], "line 3"),
        ([OLD, b"digests 0f"], "32 hexadecimal digits"),
        ([OLD, KEY, KEY], "line 3"),
    ],
)
def test_malformed_files_are_refused_with_the_line(lines: list[bytes], reason: str) -> None:
    with pytest.raises(SecretProblem, match=reason):
        ClusterSecret.parse(b"\n".join(lines))


def test_a_file_cut_anywhere_is_refused_or_has_other_digests() -> None:
    """A daemon may read it while somebody writes it. It takes no file with other digests."""
    content = ONE.with_next(NEW).with_next_in_use().content()
    for end in range(len(content) - 1):
        try:
            found = ClusterSecret.parse(content[:end])
        except SecretProblem:
            continue
        assert found.digest_key != ONE.digest_key, content[:end]


def test_a_written_file_is_closed_to_others_and_keeps_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    write_secret(path, ONE)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o440)
    write_secret(path, ONE.with_next(NEW))
    assert stat.S_IMODE(path.stat().st_mode) == 0o440
    assert read_secret(path) == ONE.with_next(NEW)
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_stays_and_the_file_behind_it_changes(tmp_path: Path) -> None:
    path, link = tmp_path / "secret", tmp_path / "link"
    write_secret(path, ONE)
    link.symlink_to(path)
    write_secret(link, ONE.with_next(NEW))
    assert link.is_symlink()
    assert read_secret(path) == ONE.with_next(NEW)


@pytest.mark.parametrize("secret", [b"a secret\nof two lines and more", b"x" * FILE_BYTES_MAX])
def test_a_secret_that_fits_no_line_is_not_replaced(tmp_path: Path, secret: bytes) -> None:
    path = tmp_path / "secret"
    path.write_bytes(secret)
    path.chmod(0o600)
    with pytest.raises(SecretProblem, match="several lines"):
        write_secret(path, read_secret(path).with_next(NEW))
    assert path.read_bytes() == secret
    assert list(tmp_path.iterdir()) == [path]


def test_indented_lines_and_other_line_ends_are_read_alike() -> None:
    added = ONE.with_next(NEW)
    lines = added.content().decode().splitlines()
    for end in ("\n    ", "\r\n"):
        assert ClusterSecret.parse(end.join(lines).encode()) == added
    assert ClusterSecret.parse(added.content().replace(b"next ", b"next\t")) == added


def test_unusable_files_are_named_with_a_remedy(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    for content, mode, reason in [
        (OLD, 0o644, "open to every user"),
        (b"x" * (FILE_BYTES_MAX + 1), 0o600, "more than"),
        (b"", 0o600, "has 0 bytes"),
    ]:
        path.write_bytes(content)
        path.chmod(mode)
        with pytest.raises(SecretProblem, match=reason) as caught:
            read_secret(path)
        assert caught.value.remedy
    with pytest.raises(SecretProblem, match="cannot be read"):
        read_secret(tmp_path / "none")
    with pytest.raises(SecretProblem, match="is not a file"):
        read_secret(Path("/dev/null"))


# --- ACLs (man 5 acl): tag, permissions, user or group -----------------------------------------

NOBODY = 0xFFFFFFFF
OWNER, USER, GROUP, MASK, OTHER = 1, 2, 4, 0x10, 0x20
READ = 4


def set_acl(path: Path, kind: str, others: int) -> None:
    """Lets the user 12345 read, and `others`."""
    entries = [
        (OWNER, 6, NOBODY),
        (USER, READ, 12345),
        (GROUP, 0, NOBODY),
        (MASK, READ, NOBODY),
        (OTHER, others, NOBODY),
    ]
    packed = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)
    try:
        os.setxattr(path, f"system.posix_acl_{kind}", packed)
    except OSError as error:
        pytest.skip(f"no ACLs at {path}: {error}")


def acl_of(path: Path) -> bytes | None:
    try:
        return os.getxattr(path, "system.posix_acl_access")
    except OSError:
        return None


def test_an_acl_that_lets_every_user_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_bytes(OLD)
    path.chmod(0o600)
    set_acl(path, "access", others=READ)
    with pytest.raises(SecretProblem, match=r"open to every user \(mode 0644\)"):
        read_secret(path)
    set_acl(path, "access", others=0)
    assert read_secret(path).value == OLD, (
        "a user whom an operator named may read it, as a group may"
    )


def test_a_default_acl_of_the_folder_opens_no_secret_and_a_files_own_acl_stays(
    tmp_path: Path,
) -> None:
    path = tmp_path / "secret"
    set_acl(tmp_path, "default", others=0)
    write_secret(path, ONE)
    assert acl_of(path) is None, "a new file is open to its owner and group alone"
    write_secret(path, ONE.with_next(NEW))
    assert acl_of(path) is None
    set_acl(path, "access", others=0)
    chosen = acl_of(path)
    write_secret(path, ONE)
    assert acl_of(path) == chosen is not None
