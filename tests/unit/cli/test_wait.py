"""`peercachectl wait` waits for the asked conditions, and says which one is not met."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from peercached.admin.status import Status
from peercached.cli import exits
from peercached.cli.ctl import main
from peercached.cli.wait import unmet


def status(**fields: Any) -> Status:
    return Status.model_validate(fields)


MEMBERS = [{"node_id": "a", "is_self": True}, {"node_id": "b"}, {"node_id": "c", "suspect": True}]
TROUBLE = [{"severity": "warning", "sentence": "a"}, {"severity": "error", "sentence": "No head."}]


@pytest.mark.parametrize(
    ("document", "healthy", "nodes", "why"),
    [
        (status(), False, None, ""),
        (status(node={"starting": True}), False, None, "the daemon still starts"),
        (status(node={"stopping": True}), False, None, "the daemon stops"),
        (status(health=TROUBLE), False, None, ""),
        (status(health=TROUBLE), True, None, "No head."),
        (status(membership={"members": MEMBERS}), False, 2, ""),
        (status(membership={"members": MEMBERS}), False, 3, "2 nodes alive, 3 wanted"),
    ],
)
def test_the_first_condition_that_is_not_met_is_named(
    document: Status, healthy: bool, nodes: int | None, why: str
) -> None:
    assert unmet(document, healthy, nodes) == why


@pytest.mark.parametrize("words", [("--timeout", "0.1", "wait"), ("wait", "--timeout", "0.1")])
def test_a_frozen_daemon_gets_no_more_time_than_is_left(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    path = str(tmp_path / "admin.sock")
    with socket.socket(socket.AF_UNIX) as frozen:
        frozen.bind(path)
        frozen.listen()
        result = CliRunner().invoke(main, ["--admin-socket", path, *words])
    assert result.exit_code == exits.FAILED
    assert "did not answer within 0.2 s" in result.output
