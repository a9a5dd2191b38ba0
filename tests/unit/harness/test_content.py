"""Page contents of the demo: every wrong byte must be detected."""

import random

import pytest
from harness.content import Content

LENGTHS = [1, 7, 8, 9, 4095, 4096, 4097, 4100, 8192, 12_345, 65_536]


@pytest.fixture(scope="module")
def content() -> Content:
    return Content(65_536)


@pytest.mark.parametrize("length", LENGTHS)
def test_a_page_is_right_for_its_own_key(content: Content, length: int) -> None:
    page = content.page(b"key", length)
    assert len(page) == length
    assert content.mismatch(b"key", memoryview(page)) is None


def test_two_processes_agree_on_a_page(content: Content) -> None:
    assert Content(4096).page(b"key", 4096) == content.page(b"key", 4096)


@pytest.mark.parametrize("length", [1, 8, 4097, 65_536])
def test_a_flip_of_any_bit_is_seen(content: Content, length: int) -> None:
    page = content.page(b"key", length)
    chance = random.Random(length)
    for place in {0, length - 1, *(chance.randrange(length) for _ in range(100))}:
        page[place] ^= 1 << chance.randrange(8)
        assert content.mismatch(b"key", memoryview(page)) is not None
        page = content.page(b"key", length)


def test_pages_of_two_keys_differ_in_every_4_kib(content: Content) -> None:
    one, other = content.page(b"key 1", 65_536), content.page(b"key 2", 65_536)
    for begin in range(0, 65_536, 4096):
        assert one[begin : begin + 8] != other[begin : begin + 8]


def test_keys_with_the_same_window_still_differ_in_every_4_kib(
    content: Content, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness.content._WINDOW_STARTS", 1)
    one, other = content.page(b"key 1", 65_536), content.page(b"key 2", 65_536)
    assert one[8:4096] == other[8:4096]
    for begin in range(0, 65_536, 4096):
        assert one[begin : begin + 8] != other[begin : begin + 8]


def test_a_page_of_another_length_under_the_same_key_is_seen(content: Content) -> None:
    longer = content.page(b"key", 8192)
    assert content.mismatch(b"key", memoryview(longer)[:4096]) is not None


def test_mismatch_describes_its_byte_positions(content: Content) -> None:
    page = content.page(b"key", 4096)
    page[1000] ^= 0xFF
    page[2000] ^= 0xFF
    described = content.mismatch(b"key", memoryview(page))
    assert described is not None
    assert "2 bytes are wrong" in described
    assert "first at 1000" in described
    assert "last at 2000" in described


def test_a_page_without_bytes_or_above_the_maximum_is_refused(content: Content) -> None:
    with pytest.raises(ValueError, match="page of 0 bytes"):
        content.page(b"key", 0)
    with pytest.raises(ValueError, match="page of 65537 bytes"):
        content.page(b"key", 65_537)
