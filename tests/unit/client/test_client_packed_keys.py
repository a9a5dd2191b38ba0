"""Every way of packing keys gives the same bytes in the same order."""

from array import array

import pytest

from peercache_client.packed_keys import PackedKeys, concatenate, pack_keys, pack_with_suffixes

STEMS = {
    "one width": ["a" * 64, "b" * 64, "c" * 64],
    "several widths": ["a", "bb", "", "cccc"],
    "not ASCII": ["ä", "bb", "你好"],
    "none": [],
}


@pytest.mark.parametrize("suffixes", [[".k"], [".k", ".value"], ["", ".ü", ".w"]])
@pytest.mark.parametrize("stems", STEMS.values(), ids=STEMS)
def test_packed_suffixed_keys_equal_keys_joined_one_by_one(
    stems: list[str], suffixes: list[str]
) -> None:
    expected = [(stem + suffix).encode() for stem in stems for suffix in suffixes]
    packed = pack_with_suffixes(stems, suffixes)
    assert list(packed) == expected
    assert len(packed) == len(expected)
    assert packed.joined == b"".join(expected)
    assert packed.lengths == array("I", map(len, expected)).tobytes()


@pytest.mark.parametrize("keys", [["a", "bb"], [b"a", b"bb"], ["a", b"bb"], ["ä", "bb"], []])
def test_packed_keys_are_a_sequence_of_them(keys: list[str | bytes]) -> None:
    expected = [key.encode() if isinstance(key, str) else key for key in keys]
    packed = pack_keys(keys)
    assert list(packed) == expected
    assert [packed[i] for i in range(len(packed))] == expected
    assert packed[1:] == expected[1:]
    assert pack_keys(packed) is packed


def test_concatenated_batches_keep_their_order() -> None:
    batches = [pack_keys(["a", "bb"]), pack_keys([]), pack_keys([b"ccc"])]
    assert list(concatenate(batches)) == [b"a", b"bb", b"ccc"]
    assert concatenate(batches[:1]) is batches[0]
    assert isinstance(concatenate([]), PackedKeys)


@pytest.mark.parametrize(("key", "said"), [(7, "must be str or bytes, not int: 7"), (None, "None")])
def test_a_key_that_is_no_text_is_named(key: object, said: str) -> None:
    with pytest.raises(TypeError, match=said):
        pack_keys(["a", key])  # type: ignore[list-item]


def test_text_that_has_no_bytes_is_refused() -> None:
    with pytest.raises(UnicodeEncodeError):
        pack_keys(["a", "\ud800"])
