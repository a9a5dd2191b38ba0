"""Bytes of KV cache for each token of a model, from its Hugging Face configuration.

Sources: the `config.json` of each model. Multi-head latent attention (DeepSeek) keeps one
compressed vector for each layer instead of keys and values for each head.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from peercached.error_text import reason

DTYPE_BYTES = {"bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "fp4": 0.5}


class UnknownModel(ValueError):
    """The text says what is missing and what to do."""


@dataclass(frozen=True)
class Model:
    """`values`: numbers kept for each token and layer."""

    name: str
    layers: int
    values: int
    kv_heads: int  # 0: compressed, the same on all ranks

    def bytes_per_token(self, dtype: str) -> float:
        """For the whole model: what all ranks keep together, each value once."""
        return self.layers * self.values * DTYPE_BYTES[dtype]


def _heads(name: str, layers: int, kv_heads: int, head_dim: int = 128) -> Model:
    return Model(name, layers, 2 * kv_heads * head_dim, kv_heads)


def _latent(name: str, layers: int, rank: int = 512, rope: int = 64) -> Model:
    return Model(name, layers, rank + rope, 0)


KNOWN = {
    model.name: model
    for model in (
        _heads("llama-3.1-8b", 32, 8),
        _heads("llama-3.1-70b", 80, 8),
        _heads("llama-3.1-405b", 126, 8),
        _heads("mistral-7b", 32, 8),
        _heads("mixtral-8x7b", 32, 8),
        _heads("qwen2.5-7b", 28, 4),
        _heads("qwen2.5-32b", 64, 8),
        _heads("qwen2.5-72b", 80, 8),
        _heads("qwen3-8b", 36, 8),
        _heads("qwen3-32b", 64, 8),
        _heads("qwen3-235b-a22b", 94, 4),
        _latent("deepseek-v3", 61),
        _latent("deepseek-r1", 61),
    )
}


def find(wanted: str) -> Model:
    """A model by its name above, or the path of its config.json or of the folder that has it.
    Raises UnknownModel."""
    if model := KNOWN.get(wanted.lower()):
        return model
    path = Path(wanted)
    try:
        path = path / "config.json" if path.is_dir() else path
        document = json.loads(path.read_text())
    except FileNotFoundError:
        raise UnknownModel(
            f"{wanted} is neither a file nor one of {', '.join(KNOWN)}: give the path of the "
            "model's config.json"
        ) from None
    except (OSError, ValueError, RecursionError) as error:
        raise UnknownModel(
            f"{path} cannot be read as a model's config.json: {reason(error)}"
        ) from error
    return of_config(str(path), document)


def of_config(name: str, document: Any) -> Model:
    """From the content of a config.json. Raises UnknownModel."""
    if not isinstance(document, dict):
        raise UnknownModel(f"{name} is not a JSON object")
    # Models that also see or hear keep the language model's part below.
    text = document.get("text_config")
    config = text if isinstance(text, dict) else document
    layers = _number(name, config, "num_hidden_layers")
    if config.get("kv_lora_rank"):
        rank, rope = (
            _number(name, config, "kv_lora_rank"),
            _number(name, config, "qk_rope_head_dim"),
        )
        return _latent(name, layers, rank, rope)
    heads = _number(name, config, "num_attention_heads")
    is_grouped = config.get("num_key_value_heads") is not None
    kv_heads = _number(name, config, "num_key_value_heads") if is_grouped else heads
    if config.get("head_dim"):
        head_dim = _number(name, config, "head_dim")
    else:
        head_dim = _number(name, config, "hidden_size") // heads
    return _heads(name, layers, kv_heads, head_dim)


def _number(name: str, config: Mapping[str, Any], key: str) -> int:
    value = config.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise UnknownModel(f"{name} has no {key}: it is not the config.json of a transformer")
    return value
