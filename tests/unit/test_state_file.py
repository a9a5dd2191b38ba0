"""JSON documents in state_dir."""

import os
from pathlib import Path

from peercached.state_file import StateFile


def test_only_the_daemons_user_reads_state_whatever_the_umask(tmp_path: Path) -> None:
    state = StateFile(str(tmp_path), "pins.json", format=1)
    (tmp_path / "pins.new").touch(0o666)  # left behind by an older version
    before = os.umask(0)
    try:
        state.replace({"a": 1})
    finally:
        os.umask(before)
    assert state.load(lambda document: document["a"]) == 1
    assert [file.name for file in tmp_path.iterdir()] == ["pins.json"]
    assert (tmp_path / "pins.json").stat().st_mode & 0o777 == 0o600
