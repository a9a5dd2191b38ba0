"""A small decoder-only transformer with random weights: RMSNorm, RoPE, grouped-query attention.

It computes one page at a time, padded to a whole page, even if only one token of it is new. So each
product has the same shape and each token the same row, however much of the prompt came from a
cache. The logits are then the same in every bit, and comparing them finds wrong KV that comparing
tokens might miss.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

_ROPE_BASE = 10_000.0
# Random projections make attention nearly uniform over thousands of tokens, so one token's KV would
# hardly matter. Sharper scores make it matter.
_QUERY_GAIN = 4.0


@dataclass(frozen=True)
class Architecture:
    layers: int = 8
    hidden: int = 512
    query_heads: int = 8
    kv_heads: int = 2
    head_dim: int = 64
    inner: int = 1536
    vocabulary: int = 4096
    page_tokens: int = 64
    context_tokens: int = 8192
    seed: int = 7

    @property
    def kv_bytes_per_token(self) -> int:
        return 2 * self.layers * self.kv_heads * self.head_dim * 4


class Decoder:
    """float32, on the CPU. Decoders of the same architecture are equal. Not thread safe."""

    def __init__(self, architecture: Architecture) -> None:
        self.architecture = a = architecture
        chosen = torch.Generator().manual_seed(a.seed)

        def matrix(rows: int, columns: int, gain: float = 1.0) -> Any:
            return torch.randn(rows, columns, generator=chosen) * (gain / math.sqrt(rows))

        self._embedding = torch.randn(a.vocabulary, a.hidden, generator=chosen)
        self._layers = [
            {
                "query": matrix(a.hidden, a.query_heads * a.head_dim, _QUERY_GAIN),
                "key": matrix(a.hidden, a.kv_heads * a.head_dim),
                "value": matrix(a.hidden, a.kv_heads * a.head_dim),
                "out": matrix(a.query_heads * a.head_dim, a.hidden),
                "gate": matrix(a.hidden, a.inner),
                "up": matrix(a.hidden, a.inner),
                "down": matrix(a.inner, a.hidden),
            }
            for _ in range(a.layers)
        ]
        self._head = matrix(a.hidden, a.vocabulary)
        frequencies = _ROPE_BASE ** (-torch.arange(0, a.head_dim, 2) / a.head_dim)
        angles = torch.outer(torch.arange(a.context_tokens).float(), frequencies)
        self._cos = angles.cos().unsqueeze(1)
        self._sin = angles.sin().unsqueeze(1)
        behind = torch.ones(a.page_tokens, a.page_tokens, dtype=torch.bool).triu(1)
        self._mask = torch.zeros(a.page_tokens, a.page_tokens).masked_fill(behind, -torch.inf)

    @torch.inference_mode()
    def compute_page(self, tokens: Sequence[int], slots: Any, kv_layers: Sequence[Any]) -> Any:
        """The logits [vocabulary] after the last of `tokens`, the last page's first tokens.

        `slots` [tokens of all pages, the last one whole] are rows of `kv_layers`, each a pair
        (K, V) of [slots, kv_heads, head_dim]. They have the KV of the pages before, and get the KV
        of this page. Rows beyond `tokens` get KV that nobody may use.
        """
        a = self.architecture
        size = a.page_tokens
        begin = len(slots) - size
        padded = torch.zeros(size, dtype=torch.long)
        padded[: len(tokens)] = torch.tensor(tokens)
        x = self._embedding[padded]
        for weights, (keys, values) in zip(self._layers, kv_layers, strict=True):
            normed = _normed(x)
            query = self._rotated((normed @ weights["query"]).view(size, -1, a.head_dim), begin)
            keys[slots[begin:]] = self._rotated(
                (normed @ weights["key"]).view(size, -1, a.head_dim), begin
            )
            values[slots[begin:]] = (normed @ weights["value"]).view(size, -1, a.head_dim)
            x = x + self._attention(query, keys[slots], values[slots]) @ weights["out"]
            normed = _normed(x)
            gate = torch.nn.functional.silu(normed @ weights["gate"])
            x = x + (gate * (normed @ weights["up"])) @ weights["down"]
        last = len(tokens) - 1
        return (_normed(x[last : last + 1]) @ self._head)[0]

    def _attention(self, query: Any, keys: Any, values: Any) -> Any:
        """[page, query heads, dim] and [tokens, KV heads, dim] to [page, query heads * dim]."""
        a = self.architecture
        size, group = a.page_tokens, a.query_heads // a.kv_heads
        query = query.view(size, a.kv_heads, group, a.head_dim).permute(1, 2, 0, 3)
        query = query.reshape(a.kv_heads, group * size, a.head_dim)
        scores = query @ keys.permute(1, 2, 0) / math.sqrt(a.head_dim)
        scores.view(a.kv_heads, group, size, -1)[..., -size:] += self._mask
        mixed = scores.softmax(-1) @ values.transpose(0, 1)
        mixed = mixed.view(a.kv_heads, group, size, a.head_dim)
        return mixed.permute(2, 0, 1, 3).reshape(size, -1)

    def _rotated(self, heads: Any, begin: int) -> Any:
        cos, sin = (table[begin : begin + len(heads)] for table in (self._cos, self._sin))
        left, right = heads.chunk(2, dim=-1)
        return torch.cat((left * cos - right * sin, right * cos + left * sin), dim=-1)


def _normed(x: Any) -> Any:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)
