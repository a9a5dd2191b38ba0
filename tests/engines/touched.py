"""The names of an engine that our adapter uses, and the classes of ours that the engine calls."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent.parent

# The classes of what engines pass to us, which no adapter imports, and names in strings.
PASSED: dict[str, tuple[str, ...]] = {
    "lmcache": (
        "lmcache.v1.distributed.api.MemoryLayoutDesc",
        "lmcache.v1.distributed.api.ObjectKey",
        "lmcache.v1.memory_management.MemoryObj",
    ),
    "sglang": (
        "sglang.srt.mem_cache.cache_init_params.CacheInitParams",
        "sglang.srt.mem_cache.device_pool_info.MHABufferInfo",
        "sglang.srt.mem_cache.device_pool_info.MLABufferInfo",
        "sglang.srt.mem_cache.device_pool_info.MambaStateBufferInfo",
        "sglang.srt.mem_cache.hicache_storage.HiCacheStorageConfig",
        "sglang.srt.mem_cache.hicache_storage.HiCacheStorageExtraInfo",
        "sglang.srt.mem_cache.hicache_storage.PoolTransfer",
        "sglang.srt.mem_cache.pool_host.common.ShmHostTensorAllocator.allocate",
    ),
    "vllm": (
        "vllm.v1.kv_offload.base.ReqContext",
        "vllm.v1.kv_offload.base.ScheduleEndContext",
        "vllm.v1.kv_offload.config.OffloadingCacheConfig",
        "vllm.v1.kv_offload.config.OffloadingConfig",
        "vllm.v1.kv_offload.config.OffloadingGroupConfig",
        "vllm.v1.kv_offload.config.OffloadingModelConfig",
        "vllm.v1.kv_offload.config.OffloadingParallelConfig",
        "vllm.v1.kv_offload.tiering.base.TransferJob",
    ),
}


class Adapter(NamedTuple):
    """One of our classes that extends one of the engine's."""

    name: str
    base: str  # with dots
    methods: dict[str, ast.arguments]


def _modules(engine: str) -> Iterator[ast.Module]:
    client = ROOT / "peercache_client"
    for path in sorted([*(client / engine).glob("*.py"), *client.glob(f"{engine}_*.py")]):
        yield ast.parse(path.read_text())


def _imports(engine: str, module: ast.Module) -> dict[str, str]:
    """The engine's names in a module of ours: {name there: name with dots}."""
    return {
        alias.asname or alias.name: f"{node.module}.{alias.name}"
        for node in ast.walk(module)
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == engine
        for alias in node.names
    }


def names(engine: str) -> list[str]:
    """With dots: what the adapter imports, attributes of imported modules, and PASSED."""
    found = set(PASSED[engine])
    for module in _modules(engine):
        imports = _imports(engine, module)
        found |= set(imports.values())
        found |= {
            f"{imports[node.value.id]}.{node.attr}"
            for node in ast.walk(module)
            if isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id in imports
        }
    return sorted(found)


def adapters(engine: str) -> list[Adapter]:
    found = []
    for module in _modules(engine):
        imports = _imports(engine, module)
        for node in module.body:
            bases = [ast.unparse(b) for b in node.bases] if isinstance(node, ast.ClassDef) else []
            for base in filter(imports.__contains__, bases):
                assert isinstance(node, ast.ClassDef)
                methods = {m.name: m.args for m in node.body if isinstance(m, ast.FunctionDef)}
                found.append(Adapter(node.name, imports[base], methods))
    return found
