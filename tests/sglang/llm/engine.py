"""Prompts in, greedy tokens out: the model over SGLang's KV pools and radix cache."""

import hashlib
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from controller_node import Shape
from radix_node import RadixNode

from llm.model import Architecture, Decoder


@dataclass(frozen=True)
class Answer:
    tokens: list[int]
    logits_sha256: str
    """Of the logits of all steps, every bit of them."""
    cached_tokens: int
    """Of the prompt, what this node had on its device or host."""
    fetched_tokens: int
    """Of the prompt, what came from peercached."""
    computed_tokens: int
    """Of the prompt."""
    fetch_s: float
    first_token_s: float


class Engine:
    """Does the work of SGLang's scheduler and model runner, for one request at a time.

    KV goes from the device pool through the host pool (shared memory) to the daemon, and back.
    """

    def __init__(
        self, socket_path: Path, architecture: Architecture, *, pool_tokens: int, model_name: str
    ) -> None:
        a = architecture
        shape = Shape(
            page_size=a.page_tokens,
            layers=a.layers,
            heads=a.kv_heads,
            head_dim=a.head_dim,
            v_head_dim=a.head_dim,
            tokens=pool_tokens,
            dtype=torch.float32,
        )
        self._decoder = Decoder(a)
        self._page_tokens = a.page_tokens
        self.node = RadixNode(
            socket_path, shape, model=model_name, hicache_storage_pass_prefix_keys=True
        )
        device = self.node.device_pool
        self._kv_layers = list(zip(device.k_buffer, device.v_buffer, strict=True))

    def answer(self, prompt: Sequence[int], new_tokens: int, *, reuse: bool = True) -> Answer:
        """Decodes greedily. Without `reuse` it looks up and keeps nothing. With it, it returns once
        all whole pages of prompt and answer have been written to the daemon."""
        began = time.monotonic()
        cached = fetched = 0
        fetch_s = 0.0
        matched = torch.empty(0, dtype=torch.int64)
        if reuse:
            # As in SGLang, the last token is always computed, because we need its logits.
            head = prompt[: self._whole(len(prompt) - 1)]
            cached = self.node.cached(head)
            fetched = self.node.fetch(head)
            matched = self.node.bring(head)
            fetch_s = time.monotonic() - began
        room = math.ceil((len(prompt) + new_tokens) / self._page_tokens) * self._page_tokens
        fresh = self.node.allocator.alloc(room - len(matched))
        assert fresh is not None, f"the device pool has no room for {room - len(matched)} tokens"
        slots = torch.cat((matched, fresh))
        tokens = list(prompt)
        digest = hashlib.sha256()
        logits: Any = None
        for end in range(len(matched), len(prompt), self._page_tokens):
            logits = self._compute(tokens[: end + self._page_tokens], slots)
        first_token_s = 0.0
        for step in range(new_tokens):
            if step:
                logits = self._compute(tokens, slots)
            digest.update(logits.numpy().tobytes())
            tokens.append(int(logits.argmax()))
            first_token_s = first_token_s or time.monotonic() - began
        self._release(tokens, slots, len(matched), reuse)
        return Answer(
            tokens=tokens[len(prompt) :],
            logits_sha256=digest.hexdigest(),
            cached_tokens=cached,
            fetched_tokens=fetched,
            computed_tokens=len(prompt) - len(matched),
            fetch_s=fetch_s,
            first_token_s=first_token_s,
        )

    def _compute(self, tokens: Sequence[int], slots: Any) -> Any:
        """The logits after `tokens`. Computes only their last page."""
        begin = self._whole(len(tokens) - 1)
        return self._decoder.compute_page(
            tokens[begin:], slots[: begin + self._page_tokens], self._kv_layers
        )

    def _release(self, tokens: Sequence[int], slots: Any, matched: int, reuse: bool) -> None:
        """Gives the whole pages to the tree. The last token has no KV yet."""
        whole = self._whole(len(tokens) - 1) if reuse else matched
        if reuse:
            self.node.keep(tokens[:whole], slots[:whole], matched)
        self.node.allocator.free(slots[whole:])

    def _whole(self, tokens: int) -> int:
        return tokens // self._page_tokens * self._page_tokens

    def flip_a_bit_of_every_get(self) -> None:
        """From now on, flips one bit of each batch that arrives in the host pool."""
        backend, pool = self.node.controller.storage_backend, self.node.pool
        get = backend.batch_get_v1

        def wrong(keys: Any, host_indices: Any, extra_info: Any = None) -> Any:
            ok = get(keys, host_indices, extra_info)
            # page_first: [tokens, layers, heads, dim]. The sign, because rounding in the sums may
            # hide the lowest bit of a value that gets little attention.
            pool.v_buffer[host_indices[0], 0, 0, 0] *= -1
            return ok

        backend.batch_get_v1 = wrong

    def __enter__(self) -> "Engine":
        return self

    def __exit__(self, *_: object) -> None:
        self.node.close()
