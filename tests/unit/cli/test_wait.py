"""What `peercachectl wait` waits for."""

from __future__ import annotations

from typing import Any

import pytest

from peercached.admin.status import Status
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
