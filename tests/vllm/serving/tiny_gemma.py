"""A small Gemma 3 with random weights: a hybrid model, with layers that see a sliding window and
layers that see everything. vLLM gives it several KV cache groups.

Its weights are large enough that the KV cache matters, as those of `tiny_model.py`.
"""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from serving.prompts import VOCABULARY

# Gemma's norms multiply by 1 + weight. Here it makes attention less uniform.
_QUERY_NORM = 3.0


@dataclass(frozen=True)
class Hybrid:
    layers: str = "sfssfs"
    """One letter for each layer: s = sliding window, f = full attention."""
    window_tokens: int = 80
    hidden: int = 128
    query_heads: int = 4
    kv_heads: int = 2
    head_dim: int = 32
    inner: int = 256
    vocabulary: int = VOCABULARY
    context_tokens: int = 4096
    seed: int = 11


def layer_types(letters: str) -> list[str]:
    """As config.json has them, for `Hybrid.layers`."""
    names = {"s": "sliding_attention", "f": "full_attention"}
    return [names[letter] for letter in letters]


def write_hybrid(folder: Path, a: Hybrid) -> None:
    """config.json and model.safetensors, in float32."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {
        "architectures": ["Gemma3ForCausalLM"],
        "model_type": "gemma3_text",
        "hidden_size": a.hidden,
        "intermediate_size": a.inner,
        "num_hidden_layers": len(a.layers),
        "layer_types": layer_types(a.layers),
        "sliding_window": a.window_tokens,
        "num_attention_heads": a.query_heads,
        "num_key_value_heads": a.kv_heads,
        "head_dim": a.head_dim,
        "query_pre_attn_scalar": a.head_dim,
        "vocab_size": a.vocabulary,
        "max_position_embeddings": a.context_tokens,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1000000.0,
        "rope_local_base_freq": 10000.0,
        "hidden_activation": "gelu_pytorch_tanh",
        "attention_bias": False,
        "tie_word_embeddings": True,
        "pad_token_id": 0,
        "bos_token_id": 0,
        "eos_token_id": 1,
        "dtype": "float32",
    }
    (folder / "config.json").write_text(json.dumps(config))
    chosen = torch.Generator().manual_seed(a.seed)

    def matrix(rows: int, columns: int) -> Any:
        """For `rows` outputs of `columns` inputs."""
        return torch.randn(rows, columns, generator=chosen) / math.sqrt(columns)

    weights = {
        "model.embed_tokens.weight": matrix(a.vocabulary, a.hidden),
        "model.norm.weight": torch.zeros(a.hidden),
    }
    heads, kv_heads = a.query_heads * a.head_dim, a.kv_heads * a.head_dim
    for layer in range(len(a.layers)):
        name = f"model.layers.{layer}"
        weights |= {
            f"{name}.{norm}_layernorm.weight": torch.zeros(a.hidden)
            for norm in ("input", "post_attention", "pre_feedforward", "post_feedforward")
        }
        weights |= {
            f"{name}.self_attn.q_norm.weight": torch.full((a.head_dim,), _QUERY_NORM),
            f"{name}.self_attn.k_norm.weight": torch.zeros(a.head_dim),
            f"{name}.self_attn.q_proj.weight": matrix(heads, a.hidden),
            f"{name}.self_attn.k_proj.weight": matrix(kv_heads, a.hidden),
            f"{name}.self_attn.v_proj.weight": matrix(kv_heads, a.hidden),
            f"{name}.self_attn.o_proj.weight": matrix(a.hidden, heads),
            f"{name}.mlp.gate_proj.weight": matrix(a.inner, a.hidden),
            f"{name}.mlp.up_proj.weight": matrix(a.inner, a.hidden),
            f"{name}.mlp.down_proj.weight": matrix(a.hidden, a.inner),
        }
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
