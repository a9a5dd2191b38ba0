"""Prompts for whole engines, and what vLLM finds of them."""

import random

BLOCK_TOKENS = 32
NEW_TOKENS = 24
VOCABULARY = 512  # of both models


def prompt_of(name: str, tokens: int) -> list[int]:
    chosen = random.Random(name)
    return [chosen.randrange(2, VOCABULARY) for _ in range(tokens)]


def whole_blocks(tokens: int) -> int:
    """vLLM always computes the last token of a prompt."""
    return (tokens - 1) // BLOCK_TOKENS * BLOCK_TOKENS
