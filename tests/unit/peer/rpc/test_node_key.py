"""A node's key pair and its file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from peercached.peer.rpc.node_key import KEY_BYTES, NodeKey


def test_a_signature_is_of_one_text_and_one_key() -> None:
    key, other = NodeKey.make(), NodeKey.make()
    signature = key.sign(b"text")
    assert (len(key.public), len(signature)) == (KEY_BYTES, 64)
    assert NodeKey.verify(key.public, signature, b"text")
    assert not NodeKey.verify(key.public, signature, b"test")
    assert not NodeKey.verify(other.public, signature, b"text")
    assert not NodeKey.verify(key.public, b"", b"text")
    assert not NodeKey.verify(b"short", signature, b"text")


def test_next_start_reuses_its_key_and_only_the_owner_reads_it(tmp_path: Path) -> None:
    first = NodeKey.kept(str(tmp_path), "a")
    assert NodeKey.kept(str(tmp_path), "a").public == first.public
    assert NodeKey.kept(str(tmp_path), "b").public != first.public
    assert (tmp_path / "identity-a.key").stat().st_mode & 0o777 == 0o600


def test_without_a_state_dir_each_start_has_another() -> None:
    assert NodeKey.kept("", "a").public != NodeKey.kept("", "a").public


def test_invalid_key_file_is_refused_with_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "identity-a.key").write_bytes(b"-----BEGIN")
    with pytest.raises(ValueError, match="put it back from a backup, or delete it"):
        NodeKey.kept(str(tmp_path), "a")


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_key_that_cannot_be_saved_is_still_used(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    assert NodeKey.kept(str(tmp_path), "a").public
