"""The socket that a client tries if nobody names one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from peercache_client import socket_path


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The socket in this user's folder. The system has one, too."""
    monkeypatch.setattr(socket_path, "SYSTEM_FOLDER", tmp_path / "system")
    (tmp_path / "system").mkdir()
    folder = tmp_path / "peercached"
    folder.mkdir(mode=0o700)
    (folder / "peercached.sock").touch()
    return folder / "peercached.sock"


def tried(own: Path) -> str:
    return socket_path.existing_socket_path({"XDG_RUNTIME_DIR": str(own.parent.parent)})


def test_the_users_own_socket_comes_before_the_systems(own: Path, tmp_path: Path) -> None:
    assert tried(own) == str(own)
    own.unlink()
    assert tried(own) == str(tmp_path / "system/peercached.sock")


def test_a_folder_that_others_may_write_is_passed_over(own: Path, tmp_path: Path) -> None:
    own.parent.chmod(0o777)
    assert tried(own) == str(tmp_path / "system/peercached.sock")


def test_a_link_to_a_folder_is_passed_over(own: Path, tmp_path: Path) -> None:
    own.parent.rename(tmp_path / "elsewhere")
    own.parent.symlink_to(tmp_path / "elsewhere")
    assert tried(own) == str(tmp_path / "system/peercached.sock")


def test_another_users_folder_is_passed_over(
    own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: own.stat().st_uid + 1)
    assert tried(own) == str(tmp_path / "system/peercached.sock")
