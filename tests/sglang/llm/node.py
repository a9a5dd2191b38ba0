"""The kinds of nodes that an engine may have: how its KV goes to a daemon and comes back."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

import torch
from controller_node import Shape, device_pool
from linker_node import LinkerNode
from radix_node import RadixNode, Reused
from tensors_on_stand_in import TensorsOnStandIn

Kind = Literal["none", "HiCache", "linker", "direct linker"]

_LOOKUP_S_MAX = 10.0
# Beside the KV, SGLang makes its table of requests with the device pool.
_STAND_IN_SLACK_BYTES = 4 << 20


class Node(Protocol):
    """SGLang's pools and radix cache."""

    allocator: Any
    """Of slots in the device pool."""
    device_pool: Any

    def reuse(self, tokens: Sequence[int]) -> Reused: ...

    def keep(self, tokens: Sequence[int], slots: Any, in_tree: int) -> None:
        """Gives the slots to the tree, and returns once the daemon has their KV. `in_tree` is
        that of `reuse`."""

    def close(self) -> None: ...


class NoStore:
    """A device pool alone. No KV outlives its request."""

    def __init__(self, shape: Shape) -> None:
        from sglang.srt.mem_cache.allocator import TokenToKVPoolAllocator

        self.device_pool = device_pool(shape)
        self.allocator = TokenToKVPoolAllocator(
            size=shape.tokens,
            dtype=shape.dtype,
            device="cpu",
            kvcache=self.device_pool,
            need_sort=False,
        )

    def reuse(self, tokens: Sequence[int]) -> Reused:
        return Reused(0, 0, torch.empty(0, dtype=torch.int64), 0)

    def keep(self, tokens: Sequence[int], slots: Any, in_tree: int) -> None:
        self.allocator.free(slots)

    def close(self) -> None:
        pass


def make_node(kind: Kind, socket_path: Path, shape: Shape, *, model: str, pool_bytes: int) -> Node:
    """`pool_bytes`: of the KV in the device pool."""
    if kind == "none":
        return NoStore(shape)
    if kind == "HiCache":
        return RadixNode(socket_path, shape, model=model, hicache_storage_pass_prefix_keys=True)
    # New in SGLang 0.5.23.
    from peercache_client.sglang import linker

    # On a busy machine a daemon may answer later than SGLang's scheduler waits for it. This wait is
    # part of the time to first token.
    linker._LOOKUP_TIMEOUT_S = _LOOKUP_S_MAX  # type: ignore[misc]
    stand_in = None
    if kind == "direct linker":
        stand_in = TensorsOnStandIn(pool_bytes + _STAND_IN_SLACK_BYTES)
    return LinkerNode(socket_path, shape, model=model, stand_in=stand_in)
