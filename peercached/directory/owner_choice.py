"""Which members of a view own records.

Up to `OWNERS_LEAST` members, all do. A larger cluster has fewer owners than members, so that a
`set` of many pages waits for few of them. Each owner then has the records of at most
`MEMBERS_PER_OWNER` * `directory_replicas` members, whatever the size of the cluster.

The owners are the members that have been up longest, by their incarnations, which are times. So a
newcomer seldom becomes an owner, and a node that starts again and again stops being one. The choice
is made from the view alone, so nodes with the same view agree without exchanging messages.
"""

from __future__ import annotations

from collections.abc import Mapping

OWNERS_LEAST = 4
MEMBERS_PER_OWNER = 8


def owners_in(members: int) -> int:
    """How many of that many members own records."""
    return min(members, max(OWNERS_LEAST, -(-members // MEMBERS_PER_OWNER)))


def choose_owners(incarnations: Mapping[str, int]) -> set[str]:
    """The node ids of the owners among these members. `incarnations`: by node id."""
    by_age = sorted(incarnations, key=lambda node_id: (incarnations[node_id], node_id))
    return set(by_age[: owners_in(len(by_age))])
