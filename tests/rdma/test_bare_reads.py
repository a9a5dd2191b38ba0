"""The bench's own READs bring the right bytes; otherwise their speed means nothing."""

import os

import pytest

from peercache_bench.bare_reads import BareReads
from peercache_bench.perftest import Port
from rdma.rdma_devices import devices, roce_v2_ipv4_gid

_READ_BYTES = 64 << 10
_READS = 40


def _ports() -> list[Port]:
    return [Port(name, roce_v2_ipv4_gid(name).index) for name in devices()]


@pytest.mark.parametrize("wires", [1, 2])
def test_bare_reads_bring_every_byte_once(wires: int) -> None:
    ports = _ports()
    source = memoryview(bytearray(os.urandom(_READS * _READ_BYTES)))
    dest = memoryview(bytearray(len(source)))
    pairs = list(zip(ports[:wires], ports[wires : 2 * wires], strict=True))
    reads = BareReads(pairs, source, dest, _READ_BYTES, queue_pairs=2)
    for _ in range(3):  # each round begins again at the first place
        dest[:] = bytes(len(dest))
        assert reads.gbps() > 0
        assert dest == source


def test_a_port_that_is_not_there_is_named() -> None:
    here, memory = _ports()[0], memoryview(bytearray(_READ_BYTES))
    with pytest.raises(RuntimeError, match="rxe99"):
        BareReads([(here, Port("rxe99", 0))], memory, memory, _READ_BYTES, queue_pairs=1)
