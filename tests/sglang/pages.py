"""Bytes of host pages, through the pool's tensors and thus independent of its addresses."""

import random
from array import array
from typing import Any

import torch


def page_bytes(pool: Any, index: int) -> bytes:
    """The page's bytes in SGLang's own order."""
    if pool.layout == "page_unified":  # for which SGLang's method is missing
        return bytes(_tensor_bytes(pool.kv_buffer[index // pool.page_size]))
    return bytes(_tensor_bytes(pool.get_data_page(index)))


def fill(pool: Any, indices: Any, seed: object) -> list[bytes]:
    """Writes random bytes into every page, and returns them."""
    chosen = random.Random(str(seed))
    pages = []
    for index in heads(pool, indices):
        flat = pool.get_dummy_flat_data_page()
        size = flat.numel() * flat.element_size()
        data = torch.frombuffer(bytearray(chosen.randbytes(size)), dtype=torch.uint8)
        if pool.layout == "page_unified":
            page = pool.kv_buffer[index // pool.page_size]
            page.copy_(data.view(flat.dtype).view(page.shape))
        else:
            pool.set_from_flat_data_page(index, data.view(flat.dtype))
        pages.append(page_bytes(pool, index))
    return pages


def read(pool: Any, indices: Any) -> list[bytes]:
    return [page_bytes(pool, index) for index in heads(pool, indices)]


def heads(pool: Any, indices: Any) -> list[int]:
    found: list[int] = indices[:: pool.page_size].tolist()
    return found


def alloc(pool: Any, pages: int) -> Any:
    indices = pool.alloc(pages * pool.page_size)
    assert indices is not None, "the host pool is full"
    return indices.clone()


def tokens(name: str, count: int) -> list[int]:
    """Tokens that follow from the name. A longer row begins with a shorter one."""
    chosen = random.Random(name)
    return [chosen.randrange(1, 100_000) for _ in range(count)]


def hashes(name: str, count: int) -> list[str]:
    """Page hashes as SGLang makes them, of 16 tokens a page."""
    from sglang.srt.mem_cache.utils import get_hash_str

    made: list[str] = get_hash_str(array("q", tokens(name, 16 * count)), None, page_size=16)
    return made


def _tensor_bytes(tensor: Any) -> memoryview:
    return memoryview(tensor.contiguous().view(torch.uint8).numpy().reshape(-1))
