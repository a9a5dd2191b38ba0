"""Other readers of the daemon's private files, on a host with users and groups in LDAP."""

from __future__ import annotations

import grp
from pathlib import Path
from typing import Any

import pytest

from peercached.config import Config
from peercached.config.private import Readers


def test_readers_are_told_while_the_groups_cannot_be_looked_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("x" * 32)
    secret.chmod(0o640)
    group = grp.struct_group(("workers", "x", secret.stat().st_gid, []))
    for name in ("getgrnam", "getgrgid"):
        monkeypatch.setattr(grp, name, lambda _: group)
    readers = Readers(Config(cluster_secret_file=str(secret), socket_group="workers"), 4711)

    def down(_: Any) -> Any:
        raise KeyError("LDAP does not answer")

    for name in ("getgrnam", "getgrgid"):
        monkeypatch.setattr(grp, name, down)
    told = {"cluster_secret_file": "the workers, through the group workers"}
    assert readers.now() == told
    secret.chmod(0o600)
    assert readers.now() == {}, "the mode is looked at each time"
    secret.chmod(0o640)
    assert readers.now() == told
