"""The objects of the cold tier: what is not as it was written is refused."""

import struct
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peercached.cold import format as form
from peercached.cold.format import ENTRY, Index, Mangled, Record

NAMESPACE = bytes(range(16))


def index_of(*pages: tuple[int, int], payload_bytes: int = 4096) -> Index:
    entries = b"".join(
        ENTRY.pack(bytes([number]) * 16, number, offset, length)
        for number, (offset, length) in enumerate(pages)
    )
    return Index(NAMESPACE, 7, payload_bytes, entries)


def test_index_and_record_come_back_as_they_were() -> None:
    index = index_of((0, 100), (128, 200))
    index = replace(index, generation=5, made_ms=9, home=b"h" * 16)
    packed = index.pack()
    assert form.parse_index(packed, form.name_of(packed)) == index
    assert index.digests == [b"\0" * 16, b"\1" * 16]
    record = Record(NAMESPACE, 7, bytes(32), 5)
    packed = record.pack()
    assert form.parse_record(packed, form.name_of(packed)) == record


def test_same_pages_have_the_same_name_and_others_another() -> None:
    names = {form.name_of(index_of((0, length)).pack()) for length in (100, 100, 101)}
    assert len(names) == 2


@given(st.data())
def test_any_changed_byte_of_an_index_or_record_is_noticed(data: st.DataObject) -> None:
    made, parse = data.draw(
        st.sampled_from(
            [
                (index_of((0, 100), (128, 200)).pack(), form.parse_index),
                (Record(NAMESPACE, 7, bytes(32)).pack(), form.parse_record),
            ]
        )
    )
    packed = bytearray(made)
    name = form.name_of(bytes(packed))
    packed[data.draw(st.integers(0, len(packed) - 1))] ^= data.draw(st.integers(1, 255))
    with pytest.raises(Mangled):
        parse(bytes(packed), name)
    with pytest.raises(Mangled):
        parse(bytes(packed[: data.draw(st.integers(0, len(packed) - 1))]), name)


@given(st.binary(max_size=200))
def test_foreign_bytes_are_mangled_even_under_their_own_name(foreign: bytes) -> None:
    for parse in (form.parse_index, form.parse_record):
        with pytest.raises(Mangled):
            parse(foreign, form.name_of(foreign))


@pytest.mark.parametrize(
    "index",
    [
        index_of(),
        index_of((0, 0)),
        index_of((4000, 100)),
        index_of((0, 100), payload_bytes=form.OBJECT_BYTES_MAX + 1),
        Index(NAMESPACE, form.EPOCH_LIMIT, 4096, index_of((0, 100)).entries),
        replace(index_of((0, 100)), generation=form.GENERATION_LIMIT),
    ],
)
def test_index_with_impossible_pages_is_mangled(index: Index) -> None:
    packed = index.pack()
    with pytest.raises(Mangled):
        form.parse_index(packed, form.name_of(packed))


def test_index_that_promises_more_pages_than_it_has_is_mangled() -> None:
    packed = bytearray(index_of((0, 100)).pack())
    struct.pack_into("<I", packed, 12, 2)
    with pytest.raises(Mangled):
        form.parse_index(bytes(packed), form.name_of(bytes(packed)))


def test_names_sort_by_time_and_foreign_names_are_told_apart() -> None:
    paths = [form.log_path("voids", ms, NAMESPACE) for ms in (5, 1_700_000_000_000)]
    assert paths == sorted(paths)
    assert form.of_log_path("voids", paths[0]) == (5, NAMESPACE)
    for foreign in ("voids/x", "voids/5-00", paths[0] + "0", "voids/.keep"):
        assert form.of_log_path("voids", foreign) is None
