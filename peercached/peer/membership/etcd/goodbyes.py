"""A node's goodbye in etcd, for nodes that do not see its key go.

A node that leaves writes LEFT into its key, and then the key goes. Another node's watch may
be broken meanwhile, for example because etcd restarts. That node later finds no key, and could not
tell an orderly end from a death. So the goodbye also stays for an hour in the key
`PREFIX/goodbyes/NODE_ID`: the incarnation that has left.
"""

from __future__ import annotations

from peercached.membership import NodeAddress
from peercached.membership.etcd_view import EtcdView
from peercached.peer.membership.etcd.client import EtcdClient

# A node that is cut off from etcd for longer may report a node as lost that has left.
KEPT_S = 3600


class EtcdGoodbyes:
    """Every call raises EtcdError if it fails."""

    def __init__(self, client: EtcdClient, prefix: str, own: NodeAddress, state: EtcdView) -> None:
        self._client = client
        self._prefix = f"{prefix.rstrip('/')}/goodbyes/".encode()
        self._own = own
        self._state = state

    async def say(self) -> None:
        """Call it before our key goes."""
        lease = await self._client.grant(KEPT_S)
        key = self._prefix + self._own.node_id.encode()
        await self._client.put(key, str(self._own.incarnation).encode(), lease)

    async def hear(self) -> None:
        """Call it after the nodes' keys were read: then no key is missing without its goodbye."""
        found, _ = await self._client.read(self._prefix)
        for kv in found:
            if kv.value.isdigit():
                node_id = kv.key.removeprefix(self._prefix).decode(errors="replace")
                self._state.left(node_id, int(kv.value))
