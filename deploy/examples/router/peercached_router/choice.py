"""Chooses the node for a request. It has the least to compute before the first token."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

# A token whose KV comes from another node costs so much of one that is computed.
FETCHED: Final = 0.15
# A request that generates costs its node as much as computing so many tokens of another prompt.
RUNNING_TOKENS: Final = 64


@dataclass
class Load:
    """Of a node, as this router sees it."""

    requests: int = 0  # in flight
    tokens: float = 0.0  # that requests without a first byte still have to compute

    @property
    def cost(self) -> float:
        return self.tokens + RUNNING_TOKENS * self.requests


def work(prompt_tokens: int, prefixes: Mapping[str, int], node: str) -> float:
    """Tokens to compute there. It fetches what only another node has."""
    longest = min(max(prefixes.values(), default=0), prompt_tokens)
    here = min(prefixes.get(node, 0), prompt_tokens)
    return prompt_tokens - longest + FETCHED * (longest - here)


def ranked(
    nodes: Iterable[str], prompt_tokens: int, prefixes: Mapping[str, int], loads: Mapping[str, Load]
) -> list[str]:
    """The best node first. Of equal ones, the order stays; a part of a token is no difference."""
    return sorted(
        nodes, key=lambda node: round(loads[node].cost + work(prompt_tokens, prefixes, node))
    )
