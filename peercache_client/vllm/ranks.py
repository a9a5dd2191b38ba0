"""Refuses an engine if some of its ranks do not write into the tier's host memory.

The tier has the file of the scheduler's host. vLLM (0.32) does not check that

- all ranks run on this host: others write into a file of their own host
- the ranks of PP have the same layers: each rank finds the places of its bytes by the sizes of its
  own layers, so one overwrites the bytes of another (vllm#50821), also without a tier
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from vllm.transformers_utils.config import get_config

from peercache_client.memory import Mapping, read_mappings


def check_ranks(config: Any, address: int) -> None:
    """`config`: vLLM's OffloadingConfig, with the layers of the first rank. `address`: of the host
    memory, which vLLM's workers have mapped by now. ValueError."""
    if config.parallel.world_size == 1:
        return
    _check_hosts(config.parallel.world_size, address)
    if config.parallel.pp_size > 1:
        _check_layers(config)


def _check_hosts(ranks: int, address: int) -> None:
    [memory] = read_mappings(address, address + 1)
    size = _mapped_size(memory, read_mappings())
    workers = [found for pid in _other_processes() if (found := _size_in(pid, memory))]
    if len(workers) < ranks:
        raise ValueError(
            f"{len(workers)} of {ranks} ranks share the host memory {memory.path} with the "
            "scheduler. The others run on other hosts, and their KV would be lost: this tier "
            "needs all ranks of an engine on one host"
        )
    if any(found != size for found in workers):
        raise ValueError(
            f"the ranks map {sorted(workers)} bytes of {memory.path}, the scheduler {size}: their "
            "layers differ, so vLLM mixes their bytes (vllm#50821). Take a pipeline_parallel_size "
            "that divides the number of layers, and no draft model with PP"
        )


def _other_processes() -> list[int]:
    names = (path.name for path in Path("/proc").iterdir())
    return [int(name) for name in names if name.isdigit() and int(name) != os.getpid()]


def _size_in(pid: int, memory: Mapping) -> int:
    try:
        if f" {memory.inode} ".encode() not in Path(f"/proc/{pid}/maps").read_bytes():
            return 0
        return _mapped_size(memory, read_mappings(pid=pid))
    except OSError:
        return 0  # it has ended, or is another user's


def _mapped_size(memory: Mapping, mappings: list[Mapping]) -> int:
    """How much of the file is mapped: the kernel splits one mapping into several lines."""
    ends = (
        each.offset + each.end - each.start
        for each in mappings
        if (each.device, each.inode) == (memory.device, memory.inode)
    )
    return max(ends, default=0)


def _check_layers(config: Any) -> None:
    ranks = config.parallel.pp_size
    first = sum(len(group.layer_names) for group in config.groups)
    layers, problem = _layers_of(config.model.name)
    same = layers == first * ranks and len(config.groups) == 1
    if same and not os.environ.get("VLLM_PP_LAYER_PARTITION"):
        return
    raise ValueError(
        f"pipeline_parallel_size={ranks}: the first rank has {first} layers with a KV cache, the "
        f"model {problem or layers} layers. If not all ranks have the same layers, "
        "vLLM mixes their bytes in the host memory (vllm#50821). Take a pipeline_parallel_size "
        "that divides the number of layers, and one kind of layers"
    )


def _layers_of(model: str) -> tuple[int, str]:
    """The layers of the model, and why they are not known."""
    try:
        text = get_config(model, trust_remote_code=False).get_text_config()
        return int(text.num_hidden_layers), ""
    except Exception as error:
        return 0, f"an unknown number ({error}) of"
