"""Page hashes equal those of HiCache. tests/sglang compares them with SGLang's own code."""

import hashlib
import struct
from typing import Any

import pytest

from peercache_client.connector.page_chain import PageChain
from peercache_client.page_hash import namespace_seed, page_hashes, words

# Made by sglang 0.5.23: get_hash_str(array("q", range(1, 9)), None, page_size=4), and the same
# after storage_namespace_seed("adapter", None).
GOLDEN = [
    "cf97adeedb59e05bfd73a2b4c2a8885708c4f4f70c84c64b27120e72ab733b72",
    "4ebfa8a1f3c341517621838c6e1b9aa350307e3f00b3cbd1a07ef740f54396d6",
]
GOLDEN_SEED = "3dd6fac356ea1a7dd3a58bc696ff0e19d6a04502f72f0c0550908bb9dbd81b52"
GOLDEN_SEEDED = [
    "acd265962eabee4e33c482898f6c33f5ec69aad0a199e0e873d2441d9276d67c",
    "11d39edb32aa16f0e4a51bfb39d69d14ca43210cb976439994f176dfdef5c411",
]
GOLDEN_WIDE = [
    "f811c3a3678e598519fa5dc57b063e0a7773f488af002512cf8ae26d9fb2d1e4",
    "a1042e316aae3cfa31d4979d1042046a983f8fa77978e2799f94a2dc07e2a68d",
]  # of 1, 2, 2**32, 4 and 5, 6, 7, 8


def test_golden_vectors() -> None:
    assert page_hashes(range(1, 9), 4) == GOLDEN
    assert namespace_seed("adapter", None) == GOLDEN_SEED
    assert page_hashes(range(1, 9), 4, GOLDEN_SEED) == GOLDEN_SEEDED
    assert page_hashes([1, 2, 2**32, 4, 5, 6, 7, 8], 4) == GOLDEN_WIDE


def test_a_hash_covers_all_tokens_before_it() -> None:
    first = hashlib.sha256(struct.pack("<2I", 1, 2)).digest()
    second = hashlib.sha256(first + struct.pack("<2I", 3, 4)).digest()
    assert page_hashes([1, 2, 3, 4, 5], 2) == [first.hex(), second.hex()]
    assert page_hashes([3, 4], 2, first.hex()) == [second.hex()]


def test_pair_hash_covers_the_token_after_its_page() -> None:
    first = hashlib.sha256(struct.pack("<4I", 1, 2, 2, 3)).digest()
    wide = b"\xff" + struct.pack("<4Q", 3, 4, 4, 2**32)
    second = hashlib.sha256(first + wide).digest()
    assert page_hashes([1, 2, 3, 4, 2**32], 2, pairs=True) == [first.hex(), second.hex()]
    assert page_hashes([1, 2, 3, 4], 2, pairs=True) == [first.hex()]
    assert page_hashes([1], 2, pairs=True) == page_hashes([], 2, pairs=True) == []


def test_absent_empty_and_joined_parts_of_a_seed_differ() -> None:
    pairs = [("", None), (None, ""), ("ab", None), ("a", "b"), ("", "ab"), ("ab", ""), ("", "")]
    assert len({namespace_seed(*pair) for pair in pairs}) == len(pairs)
    assert namespace_seed(None, None) is None


@pytest.mark.parametrize("token", [-1, 2**63, -(2**63) - 1, 1.5, "7", None])
def test_invalid_token_is_reported_with_its_position(token: Any) -> None:
    for tokens in ([1, token, -5], (1, token, -5), iter([1, token, -5])):
        with pytest.raises(ValueError, match=f"token 1 is {token!r}: a whole number"):
            page_hashes(tokens, 2)


@pytest.mark.parametrize("pairs", [False, True], ids=["tokens", "pairs"])
def test_a_chain_grows_with_its_request(pairs: bool) -> None:
    chain = PageChain(2, pairs=pairs)
    tokens = words(range(11))
    for known in (0, 1, 2, 3, 5, 11, 7, 10, 1, 11):
        expected = page_hashes(range(known), 2, pairs=pairs)
        assert chain.hashes(tokens[:known], None) == expected


@pytest.mark.parametrize("pairs", [False, True], ids=["tokens", "pairs"])
@pytest.mark.parametrize("changed", range(9))
def test_tokens_that_change_have_other_hashes_from_there_on(changed: int, pairs: bool) -> None:
    chain = PageChain(2, pairs=pairs)
    tokens = words(range(9))
    chain.hashes(tokens, None)
    tokens[changed] = 77
    assert chain.hashes(tokens, None) == page_hashes(tokens, 2, pairs=pairs)
    seed = namespace_seed("other", None)
    assert chain.hashes(tokens, seed) == page_hashes(tokens, 2, seed, pairs=pairs)
