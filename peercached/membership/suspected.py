"""The processes in our view that fail to answer us."""

from __future__ import annotations

from peercached.membership.view import NodeAddress


class Suspected:
    """The failure detector fills it. A restarted node is another process. Not thread safe."""

    def __init__(self) -> None:
        self._processes: set[tuple[str, int, bytes]] = set()

    def add(self, address: NodeAddress) -> None:
        self._processes.add(address.process)

    def discard(self, address: NodeAddress) -> None:
        self._processes.discard(address.process)

    def __contains__(self, address: object) -> bool:
        return isinstance(address, NodeAddress) and address.process in self._processes
