"""Refuses ranks of PP that have different layers.

Each of vLLM's ranks finds the places of its bytes in the host memory by the sizes of its own
layers. If these are not those of the other ranks, one rank overwrites the bytes of another
(vllm#50821, seen with vLLM 0.32). So vLLM's own host memory gives wrong tokens, and a tier would
give them to other engines.
"""

from __future__ import annotations

import logging
import os
from typing import Any

from vllm.transformers_utils.config import get_config

log = logging.getLogger(__name__)


def check_pipeline(config: Any) -> None:
    """`config`: vLLM's OffloadingConfig, with the layers of the first rank. ValueError."""
    ranks = config.parallel.pp_size
    if ranks == 1:
        return
    first = sum(len(group.layer_names) for group in config.groups)
    layers = _layers_of(config.model.name)
    same = layers == first * ranks and len(config.groups) == 1
    if same and not os.environ.get("VLLM_PP_LAYER_PARTITION"):
        return
    raise ValueError(
        f"pipeline_parallel_size={ranks}: the first rank has {first} layers with a KV cache, the "
        f"model {layers or 'an unknown number of'} layers. If not all ranks have the same layers, "
        "vLLM mixes their bytes in the host memory (vllm#50821). Take a pipeline_parallel_size "
        "that divides the number of layers, and one kind of layers"
    )


def _layers_of(model: str) -> int | None:
    try:
        return int(get_config(model, trust_remote_code=False).get_text_config().num_hidden_layers)
    except Exception as error:
        log.warning("peercached: cannot read the configuration of %s: %s", model, error)
        return None
