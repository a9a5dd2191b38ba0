"""Memory for so many prompts."""

import pytest

from peercached.sizing.models import KNOWN
from peercached.sizing.working_set import USABLE, Plan, plan

LLAMA = KNOWN["llama-3.1-8b"]


def made(**changes: int) -> Plan:
    given = {"context_tokens": 8192, "users": 100, "shared_tokens": 0, "nodes": 1, "owners": 1,
             "page_tokens": 64, "pieces_per_page": 2}  # fmt: skip
    return plan(LLAMA, "bf16", **{**given, **changes})


def test_the_working_set_is_tokens_times_bytes_and_headers() -> None:
    one = made()
    assert one.pages == 12_800
    assert one.page == 8 << 20
    assert one.working_set == pytest.approx(12_800 * (8 << 20), rel=1e-4)
    assert one.pool_per_node == pytest.approx(one.working_set / USABLE, rel=1e-6)


def test_blocks_shared_by_all_prompts_are_kept_once() -> None:
    assert made(shared_tokens=4096).pages == (100 * 4096 + 4096) // 64
    assert made(shared_tokens=10_000).pages == 8192 // 64, "all of it"


def test_ranks_beyond_the_kv_heads_store_their_heads_again() -> None:
    assert made(tp=8).bytes_per_token == made().bytes_per_token
    assert made(tp=16).bytes_per_token == 2 * made().bytes_per_token


def test_nodes_divide_pages_and_records() -> None:
    one, four = made(), made(nodes=4, owners=4)
    assert four.pool_per_node == pytest.approx(one.pool_per_node / 4, rel=1e-6)
    assert one.directory_per_owner == 12_800 * 2 * 48, "one node owns each record once"
    assert four.directory_per_owner == 12_800 * 2 * 48 * 2 / 4
    assert made(nodes=64, owners=8).directory_per_owner == 12_800 * 2 * 48 * 2 / 8
