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
from radix_node import Reused

from llm.model import Architecture, Decoder
from llm.node import Kind, make_node


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

    @property
    def reused_tokens(self) -> int:
        return self.cached_tokens + self.fetched_tokens


class Engine:
    """Does the work of SGLang's scheduler and model runner, for one request at a time.

    `kind` says how KV goes from the device pool to the daemon, and back.
    """

    def __init__(
        self,
        socket_path: Path,
        architecture: Architecture,
        *,
        kind: Kind,
        pool_tokens: int,
        model_name: str,
    ) -> None:
        a = architecture
        pages = math.ceil(pool_tokens / a.page_tokens)
        shape = Shape(
            page_size=a.page_tokens,
            layers=a.layers,
            heads=a.kv_heads,
            head_dim=a.head_dim,
            v_head_dim=a.head_dim,
            tokens=pages * a.page_tokens,
            dtype=torch.float32,
        )
        self._decoder = Decoder(a)
        self._page_tokens = a.page_tokens
        self.node = make_node(
            kind,
            socket_path,
            shape,
            model=model_name,
            # SGLang's pool has one page more, for padding.
            pool_bytes=(pages + 1) * a.page_tokens * a.kv_bytes_per_token,
        )
        device = self.node.device_pool
        self._kv_layers = list(zip(device.k_buffer, device.v_buffer, strict=True))

    def answer(
        self,
        prompt: Sequence[int],
        new_tokens: int,
        *,
        reuse: bool = True,
        flip_a_bit: bool = False,
    ) -> Answer:
        """Decodes greedily. Without `reuse` it looks up and keeps nothing. With it, it returns once
        all whole pages of prompt and answer have been written to the daemon. With `flip_a_bit` the
        KV that came from the daemon has a wrong bit."""
        began = time.monotonic()
        reused = Reused(0, 0, torch.empty(0, dtype=torch.int64), 0)
        fetch_s = 0.0
        if reuse:
            # As in SGLang, the last token is always computed, because we need its logits.
            reused = self.node.reuse(prompt[: self._whole(len(prompt) - 1)])
            fetch_s = time.monotonic() - began
        matched = reused.slots
        if flip_a_bit and reused.fetched:
            # The sign, because rounding in the sums may hide the lowest bit of a value that gets
            # little attention.
            _, values = self._kv_layers[0]
            values[matched[reused.cached], 0, 0] *= -1
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
        # The last token has no KV yet.
        kept = self._whole(len(tokens) - 1) if reuse else 0
        if kept:
            self.node.keep(tokens[:kept], slots[:kept], reused.in_tree)
        self.node.allocator.free(slots[kept:])
        return Answer(
            tokens=tokens[len(prompt) :],
            logits_sha256=digest.hexdigest(),
            cached_tokens=reused.cached,
            fetched_tokens=reused.fetched,
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

    def _whole(self, tokens: int) -> int:
        return tokens // self._page_tokens * self._page_tokens

    def __enter__(self) -> "Engine":
        return self

    def __exit__(self, *_: object) -> None:
        self.node.close()
