"""A Llama with random weights, as a folder that vLLM can load. No hub is asked.

vLLM's `--load-format dummy` will not do: its weights are so small that the KV cache hardly changes
any logit. Tokens would be the same with wrong KV.
"""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from serving.prompts import VOCABULARY

# Random projections make attention nearly uniform, so that one token's KV would hardly matter.
_QUERY_GAIN = 4.0


@dataclass(frozen=True)
class Architecture:
    layers: int = 3
    hidden: int = 128
    query_heads: int = 4
    kv_heads: int = 2
    head_dim: int = 32
    inner: int = 256
    vocabulary: int = VOCABULARY
    context_tokens: int = 4096
    seed: int = 7

    @property
    def kv_bytes_per_token(self) -> int:
        return 2 * self.layers * self.kv_heads * self.head_dim * 4


def write_model(folder: Path, a: Architecture) -> None:
    """config.json and model.safetensors, in float32."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": a.hidden,
        "intermediate_size": a.inner,
        "num_hidden_layers": a.layers,
        "num_attention_heads": a.query_heads,
        "num_key_value_heads": a.kv_heads,
        "head_dim": a.head_dim,
        "vocab_size": a.vocabulary,
        "max_position_embeddings": a.context_tokens,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
        "bos_token_id": 0,
        "eos_token_id": 1,
        "dtype": "float32",
    }
    (folder / "config.json").write_text(json.dumps(config))
    chosen = torch.Generator().manual_seed(a.seed)

    def matrix(rows: int, columns: int, gain: float = 1.0) -> Any:
        """For `rows` outputs of `columns` inputs."""
        return torch.randn(rows, columns, generator=chosen) * (gain / math.sqrt(columns))

    weights = {
        "model.embed_tokens.weight": torch.randn(a.vocabulary, a.hidden, generator=chosen),
        "model.norm.weight": torch.ones(a.hidden),
        "lm_head.weight": matrix(a.vocabulary, a.hidden),
    }
    for layer in range(a.layers):
        name = f"model.layers.{layer}"
        heads, kv_heads = a.query_heads * a.head_dim, a.kv_heads * a.head_dim
        weights |= {
            f"{name}.input_layernorm.weight": torch.ones(a.hidden),
            f"{name}.post_attention_layernorm.weight": torch.ones(a.hidden),
            f"{name}.self_attn.q_proj.weight": matrix(heads, a.hidden, _QUERY_GAIN),
            f"{name}.self_attn.k_proj.weight": matrix(kv_heads, a.hidden),
            f"{name}.self_attn.v_proj.weight": matrix(kv_heads, a.hidden),
            f"{name}.self_attn.o_proj.weight": matrix(a.hidden, heads),
            f"{name}.mlp.gate_proj.weight": matrix(a.inner, a.hidden),
            f"{name}.mlp.up_proj.weight": matrix(a.inner, a.hidden),
            f"{name}.mlp.down_proj.weight": matrix(a.hidden, a.inner),
        }
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
