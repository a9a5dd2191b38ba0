"""Bytes of KV cache per token, from model names and configurations."""

import json
from pathlib import Path

import pytest

from peercached.sizing.models import KNOWN, UnknownModel, find, of_config

LLAMA = {
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "hidden_size": 4096,
}
DEEPSEEK = {"num_hidden_layers": 61, "num_attention_heads": 128, "kv_lora_rank": 512,
            "qk_rope_head_dim": 64}  # fmt: skip


def test_a_known_name_and_its_configuration_agree() -> None:
    assert KNOWN["llama-3.1-8b"].bytes_per_token("bf16") == 131_072
    assert of_config("x", LLAMA).bytes_per_token("bf16") == 131_072
    assert KNOWN["deepseek-v3"].bytes_per_token("bf16") == 70_272
    assert of_config("x", DEEPSEEK).bytes_per_token("bf16") == 70_272
    assert KNOWN["llama-3.1-70b"].bytes_per_token("fp8") == 163_840


def test_old_models_have_as_many_kv_heads_as_heads() -> None:
    config = {key: value for key, value in LLAMA.items() if key != "num_key_value_heads"}
    assert of_config("x", config).bytes_per_token("bf16") == 4 * 131_072


def test_a_model_that_also_sees_has_its_text_part() -> None:
    assert of_config("x", {"text_config": LLAMA, "vision_config": {}}).layers == 32


def test_a_folder_or_a_file_may_be_given(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA | {"head_dim": 256}))
    assert find(str(tmp_path)).bytes_per_token("bf16") == 262_144
    assert find(str(tmp_path / "config.json")).layers == 32


def test_a_wrong_name_lists_the_known_ones_and_a_wrong_file_says_what_is_missing(
    tmp_path: Path,
) -> None:
    with pytest.raises(UnknownModel, match=r"neither a file nor one of llama-3.1-8b"):
        find("llama-9")
    file = tmp_path / "config.json"
    file.write_text("{")
    with pytest.raises(UnknownModel, match="cannot be read"):
        find(str(file))
    with pytest.raises(UnknownModel, match="no num_hidden_layers"):
        of_config("x", {})
    with pytest.raises(UnknownModel, match="no num_key_value_heads"):
        of_config("x", LLAMA | {"num_key_value_heads": "eight"})
    with pytest.raises(UnknownModel, match="not a JSON object"):
        of_config("x", [])
