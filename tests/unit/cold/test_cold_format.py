"""The objects of the cold tier: what is not as it was written is refused."""

import struct
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peercached.cold import format as form
from peercached.cold.format import ENTRY, NO_SEAL, Index, Mangled, OtherKey, Record
from peercached.cold.sealing import SEAL_BYTES, NoSeal, Sealing

NAMESPACE = bytes(range(16))
SEAL = Sealing(b"k" * 32)
RECORD = Record(NAMESPACE, 7, bytes(32)).pack()


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
    name, packed = index.sealed(SEAL)
    assert form.parse_index(packed, name, SEAL) == index
    record = Record(NAMESPACE, 7, bytes(32), 5)
    packed = record.pack()
    assert form.parse_record(packed, form.name_of(packed)) == record


def test_same_pages_have_the_same_name_and_others_another() -> None:
    names = {form.name_of(index_of((0, length)).pack()) for length in (100, 100, 101)}
    assert len(names) == 2


Parse = Callable[[bytes, bytes], object]
parse_sealed: Parse = partial(form.parse_index, seal=SEAL)
STORED: list[tuple[bytes, bytes, Parse]] = [
    (*index_of((0, 100), (128, 200)).sealed(NO_SEAL), form.parse_index),
    (*index_of((0, 100), (192, 200)).sealed(SEAL), parse_sealed),
    (form.name_of(RECORD), RECORD, form.parse_record),
]


@given(st.data())
def test_any_changed_byte_of_an_index_or_record_is_noticed(data: st.DataObject) -> None:
    name, made, parse = data.draw(st.sampled_from(STORED))
    packed = bytearray(made)
    packed[data.draw(st.integers(0, len(packed) - 1))] ^= data.draw(st.integers(1, 255))
    with pytest.raises(Mangled):
        parse(bytes(packed), name)
    with pytest.raises(Mangled):
        parse(bytes(packed[: data.draw(st.integers(0, len(packed) - 1))]), name)


@given(st.binary(max_size=200))
def test_foreign_bytes_are_mangled_even_under_their_own_name(foreign: bytes) -> None:
    for parse in (form.parse_index, parse_sealed, form.parse_record):
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
    for seal in (NO_SEAL, SEAL):
        name, packed = index.sealed(seal)
        with pytest.raises(Mangled):
            form.parse_index(packed, name, seal)


U32, U64 = st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1)


@given(st.lists(st.tuples(U32, U32), max_size=4), U32 | U64, U32 | U64, U32)
def test_any_index_of_a_member_is_taken_with_its_pages_in_its_payloads_or_not_at_all(
    pages: list[tuple[int, int]], payload_bytes: int, epoch: int, generation: int
) -> None:
    """A program with the key may write anything."""
    index = index_of(*pages, payload_bytes=payload_bytes)
    index = replace(index, epoch=epoch, generation=generation)
    for seal in (NO_SEAL, SEAL):
        name, packed = index.sealed(seal)
        ends = [offset + length + seal.extra_bytes for offset, length in pages]
        is_possible = (
            pages
            and all(length for _, length in pages)
            and max(ends) <= payload_bytes <= form.OBJECT_BYTES_MAX
            and epoch < form.EPOCH_LIMIT
            and generation < form.GENERATION_LIMIT
        )
        if is_possible:
            assert form.parse_index(packed, name, seal) == index
        else:
            with pytest.raises(Mangled):
                form.parse_index(packed, name, seal)


def test_seal_of_a_page_lies_within_the_payloads() -> None:
    for payload_bytes, fits in ((100 + SEAL_BYTES, True), (99 + SEAL_BYTES, False)):
        index = index_of((0, 100), payload_bytes=payload_bytes)
        name, packed = index.sealed(SEAL)
        if fits:
            assert form.parse_index(packed, name, SEAL) == index
        else:
            with pytest.raises(Mangled):
                form.parse_index(packed, name, SEAL)


def test_sealed_index_opens_under_its_key_and_name_alone_and_shows_no_entry() -> None:
    index = index_of((0, 100), (192, 200))
    name, packed = index.sealed(SEAL)
    again, other_nonce = index.sealed(Sealing(b"k" * 32))
    assert name == again and packed != other_nonce, "two writers write one object"
    for entry in index.each[1:]:  # the bytes of the first one are zeros
        assert all(entry[at : at + 8] in index.pack() for at in (0, 8, 12, 16))
        assert all(entry[at : at + 8] not in packed for at in (0, 8, 12, 16))
    other = Sealing(b"o" * 32)
    assert name != form.name_of(index.pack(SEAL)), "it is a keyed hash"
    for seal in (other, NO_SEAL):
        with pytest.raises(OtherKey):
            form.parse_index(packed, name, seal)
    with pytest.raises(OtherKey):
        form.parse_index(index.pack(), form.name_of(index.pack()), SEAL)
    # Made by somebody who knows our key id, but not the key.
    forged: NoSeal
    for forged in (other, NoSeal()):
        forged.id, forged.extra_bytes = SEAL.id, SEAL.extra_bytes
        forged_name, made = index.sealed(forged)
        with pytest.raises(Mangled):
            form.parse_index(made + bytes(len(packed) - len(made)), forged_name, SEAL)
    # Of another namespace, or of another object.
    theirs, moved = Index(bytes(16), 7, 4096, index.entries).sealed(SEAL)
    assert theirs != name
    for wrong_name, wrong in ((name, moved), (theirs, packed), (bytes(16), packed)):
        with pytest.raises(Mangled):
            form.parse_index(wrong, wrong_name, SEAL)


def test_keys_of_namespaces_and_epochs_differ() -> None:
    seals = {
        seal.of_pages(namespace, epoch)[:32]
        for seal in (SEAL, Sealing(b"o" * 32))
        for namespace in (NAMESPACE, bytes(16))
        for epoch in (7, 8)
    }
    assert len(seals) == 8
    assert "k" * 32 not in repr(SEAL)


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
