"""A small Qwen3-Next with random weights: half of its layers are a Gated DeltaNet. Its state is
one page for a prompt of any length. vLLM's CPU kernels of these layers need bfloat16.
"""

import math
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, Qwen3NextConfig

from serving.prompts import VOCABULARY

_LAYERS = 4


def write_gdn(folder: Path) -> None:
    torch.manual_seed(5)
    config = Qwen3NextConfig(
        vocab_size=VOCABULARY,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=_LAYERS,
        layer_types=["linear_attention", "full_attention"] * (_LAYERS // 2),
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=64,
        linear_num_value_heads=4,
        linear_num_key_heads=2,
        linear_key_head_dim=64,
        linear_value_head_dim=64,
        # vLLM wants at least one layer with experts.
        mlp_only_layers=list(range(_LAYERS - 1)),
        num_experts=4,
        num_experts_per_tok=2,
        moe_intermediate_size=64,
        shared_expert_intermediate_size=64,
        max_position_embeddings=4096,
        bos_token_id=0,
        eos_token_id=1,
        pad_token_id=0,
        tie_word_embeddings=False,
        dtype="bfloat16",
    )
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.ndim == 2:
                weight.normal_(0, 1.0 if "embed" in name else 1 / math.sqrt(weight.shape[1]))
    model.to(torch.bfloat16).save_pretrained(folder)
