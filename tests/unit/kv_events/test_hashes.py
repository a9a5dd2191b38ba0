"""The hashes that a worker gives with its pages."""

from typing import Any

import pytest

from peercache_client.page_names import UNTOLD, Names


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (b"", r"hashes\[0\] has 0 bytes: 1 to 32"),
        (bytes(33), r"hashes\[0\] has 33 bytes: 1 to 32"),
        (1 << 64, r"hashes\[0\] is 18446744073709551616: it must fit 64 bits"),
        (-(1 << 63) - 1, "it must fit 64 bits"),
        ("text", r"hashes\[0\] is 'text': bytes, an integer of 64 bits, None or UNTOLD"),
        (True, r"hashes\[0\] is True"),
        (1.5, r"hashes\[0\] is 1.5"),
    ],
)
def test_a_hash_of_a_foreign_type_is_refused_with_its_value(bad: Any, why: str) -> None:
    with pytest.raises((TypeError, ValueError), match=why):
        Names.of([bad], 1, 16)


def test_names_are_packed_in_front_of_their_kinds() -> None:
    names = Names.of([b"ab", None, UNTOLD, -1, (1 << 64) - 1], 5, 16)
    assert names is not None
    assert names.packed(0, 5) == (
        b"ab" + b"\xff" * 16 + bytes([2, 0, 0xFF, 0x88, 0x89]) + b"\x10\0\0\0"
    )
    assert names.part([0]).packed(0, 1) == b"ab\x02\x10\0\0\0"
