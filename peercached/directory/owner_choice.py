"""The members of a view that own records.

Up to `OWNERS_LEAST` members, all do. A larger cluster has fewer owners than members, so that a
`set` of many pages waits for few of them. Each owner then has the records of at most
`MEMBERS_PER_OWNER` * `directory_replicas` members, whatever the size of the cluster.

The owners are the members that have been in views longest (membership/ages.py). So a newcomer
seldom becomes an owner, and a node that starts again and again stops being one. Half of the owners
at most are of one host, as far as other hosts have members: one machine cannot own everything under
several names. The choice is made from the view alone, so nodes with the same view agree without
exchanging messages.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from peercached.membership import NodeAddress

OWNERS_LEAST = 4
MEMBERS_PER_OWNER = 8


def owners_in(members: int) -> int:
    """How many of that many members own records."""
    return min(members, max(OWNERS_LEAST, -(-members // MEMBERS_PER_OWNER)))


def choose_owners(since: Mapping[NodeAddress, int]) -> set[str]:
    """The node ids of the owners among these members. `since`: the counter of the first view that
    had each. Of equals, as are all in etcd, the one with the lower incarnation is the older."""
    owners = owners_in(len(since))
    of_host = Counter[str]()
    first: list[str] = []
    others: list[str] = []
    for address in sorted(since, key=lambda a: (since[a], a.incarnation, a.node_id)):
        of_host[address.host] += 1
        (first if of_host[address.host] <= owners // 2 else others).append(address.node_id)
    return set((first + others)[:owners])
