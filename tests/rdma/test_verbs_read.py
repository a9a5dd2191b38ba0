"""READs between two devices without our code: the machine's RDMA carries the right bytes."""

import random
from collections.abc import Iterator

import pytest

from rdma.cables import pulled
from rdma.rdma_devices import devices
from rdma.verbs_reader import ReadFailed, VerbsReader, VerbsSource

PAGE_BYTES = 128 << 10


@pytest.fixture
def contents() -> bytes:
    return random.Random(7).randbytes(4 * PAGE_BYTES)


@pytest.fixture
def source(contents: bytes) -> Iterator[VerbsSource]:
    with VerbsSource(devices()[0], contents) as made:
        yield made


@pytest.fixture
def reader(source: VerbsSource) -> Iterator[VerbsReader]:
    with VerbsReader(devices()[1], bytes_max=4 * PAGE_BYTES) as made:
        made.connect(source.endpoint)
        source.connect(made.endpoint)
        yield made


@pytest.mark.smp
@pytest.mark.parametrize("length", [1, 64, 4096, PAGE_BYTES + 64, 4 * PAGE_BYTES])
def test_a_read_brings_the_bytes_of_the_other_device(
    source: VerbsSource, reader: VerbsReader, contents: bytes, length: int
) -> None:
    begin = (len(contents) - length) // 2
    assert (
        reader.read(source.address + begin, source.rkey, length) == contents[begin : begin + length]
    )


def test_many_reads_follow_each_other(
    source: VerbsSource, reader: VerbsReader, contents: bytes
) -> None:
    dice = random.Random(8)
    for _ in range(200):
        begin = dice.randrange(len(contents) - 4096)
        got = reader.read(source.address + begin, source.rkey, 4096)
        assert got == contents[begin : begin + 4096]


def test_a_wrong_key_is_refused(source: VerbsSource, reader: VerbsReader) -> None:
    with pytest.raises(ReadFailed, match="remote_access"):
        reader.read(source.address, source.rkey ^ 0xFF, 64)


def test_memory_that_is_not_registered_is_refused(
    source: VerbsSource, reader: VerbsReader, contents: bytes
) -> None:
    with pytest.raises(ReadFailed, match="remote_access"):
        reader.read(source.address + len(contents) - 32, source.rkey, 64)


def test_a_pulled_cable_ends_the_read(source: VerbsSource, reader: VerbsReader) -> None:
    with pulled(devices()[0]), pytest.raises(ReadFailed, match="retries_exceeded"):
        reader.read(source.address, source.rkey, PAGE_BYTES, timeout_s=60)
