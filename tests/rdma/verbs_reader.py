"""A reliable connection in plain pyverbs: a peer that shares no RDMA code with ours.

    reader = VerbsReader("rxe1", bytes_max=1 << 20)
    ... tell the peer reader.endpoint, learn its own ...
    reader.connect(peer_endpoint)
    page = reader.read(address, rkey, length)

One thread at a time. pyverbs must be importable: harness.debian_pyverbs.
"""

import os
import random
import time
from dataclasses import dataclass
from typing import TypeVar

from pyverbs.addr import GID, AHAttr, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.enums import (
    IBV_ACCESS_LOCAL_WRITE,
    IBV_ACCESS_REMOTE_READ,
    IBV_MTU_256,
    IBV_MTU_512,
    IBV_MTU_1024,
    IBV_MTU_2048,
    IBV_MTU_4096,
    IBV_QPS_ERR,
    IBV_QPT_RC,
    IBV_SEND_SIGNALED,
    IBV_WC_SUCCESS,
    IBV_WR_RDMA_READ,
    IBV_WR_RDMA_WRITE,
)
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, SendWR

from rdma.rdma_devices import PORT, roce_v2_ipv4_gid

_MTU = {
    256: IBV_MTU_256,
    512: IBV_MTU_512,
    1024: IBV_MTU_1024,
    2048: IBV_MTU_2048,
    4096: IBV_MTU_4096,
}

# Local acknowledgement timeout, 4.096 us * 2^14 = 67 ms, and six retries: half a second in all.
# Not seven, because then rdma_rxe retries for ever (drivers/infiniband/sw/rxe/rxe_comp.c).
_TIMEOUT = 14
_RETRIES = 6
_RNR_TIMER = 12  # 0.64 ms
_READS_IN_FLIGHT = 16

# ibv_wc_status, in the order of infiniband/verbs.h.
_STATUSES = (
    "success",
    "local_length",
    "local_qp_operation",
    "local_eec_operation",
    "local_protection",
    "flushed",
    "mw_bind",
    "bad_response",
    "local_access",
    "remote_invalid_request",
    "remote_access",
    "remote_operation",
    "retries_exceeded",
    "rnr_retries_exceeded",
)


class ReadFailed(Exception):
    """A READ (or WRITE) ended with a bad status; the queue pair is in the error state now."""

    def __init__(self, status: int) -> None:
        known = status < len(_STATUSES)
        self.status = _STATUSES[status] if known else f"ibv_wc_status {status}"
        super().__init__(self.status)


@dataclass(frozen=True)
class Endpoint:
    """One end of a connection: queue pair, its first packet's number, its port's address."""

    queue_pair_number: int
    packet_number: int
    gid: str


Kind = TypeVar("Kind", bound="VerbsQueuePair")  # Python 3.10 has no typing.Self


class VerbsQueuePair:
    """A reliable-connection queue pair on one device, with its own completion queue."""

    def __init__(self, device: str, gid_index: int | None = None) -> None:
        """`gid_index`: entry of the port's GID table; the default is RoCE v2 over IPv4."""
        if gid_index is None:
            gid_index = roce_v2_ipv4_gid(device).index
        self._gid_index = gid_index
        self._context = Context(name=device)
        self._domain = PD(self._context)
        self._completions = CQ(self._context, _READS_IN_FLIGHT)
        limits = QPCap(max_send_wr=_READS_IN_FLIGHT, max_recv_wr=1, max_send_sge=1, max_recv_sge=1)
        wanted = QPInitAttr(
            qp_type=IBV_QPT_RC, scq=self._completions, rcq=self._completions, cap=limits
        )
        self._queue_pair = QP(self._domain, wanted)
        self.endpoint = Endpoint(
            self._queue_pair.qp_num,
            random.getrandbits(24),
            self._context.query_gid(PORT, gid_index).gid,
        )

    def connect(self, remote: Endpoint, mtu: int = 1024) -> None:
        """Moves to INIT, ready to receive and ready to send. `mtu`: bytes, 256 to 4096."""
        route = GlobalRoute(dgid=GID(remote.gid), sgid_index=self._gid_index, hop_limit=64)
        attributes = QPAttr(port_num=PORT)
        attributes.qp_access_flags = IBV_ACCESS_REMOTE_READ
        attributes.ah_attr = AHAttr(port_num=PORT, is_global=1, gr=route)
        attributes.path_mtu = _MTU[mtu]
        attributes.dest_qp_num = remote.queue_pair_number
        attributes.rq_psn = remote.packet_number
        attributes.sq_psn = self.endpoint.packet_number
        attributes.max_rd_atomic = attributes.max_dest_rd_atomic = _READS_IN_FLIGHT
        attributes.min_rnr_timer = _RNR_TIMER
        attributes.timeout = _TIMEOUT
        attributes.retry_cnt = attributes.rnr_retry = _RETRIES
        self._queue_pair.to_rts(attributes)

    def fail(self) -> None:
        """Enters the error state: flushes requests in flight. The peer's READs get no answer."""
        self._queue_pair.modify(QPAttr(qp_state=IBV_QPS_ERR), 1)  # 1: IBV_QP_STATE

    def register(self, bytes_count: int, access: int = IBV_ACCESS_LOCAL_WRITE) -> MR:
        """Allocates and registers memory."""
        return MR(self._domain, bytes_count, access)

    def close(self) -> None:
        """Closes the queue pair and the memory that is registered on it."""
        self._context.close()

    def __enter__(self: Kind) -> Kind:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class VerbsSource(VerbsQueuePair):
    """The passive end: memory that its peer may READ."""

    def __init__(self, device: str, contents: bytes, gid_index: int | None = None) -> None:
        super().__init__(device, gid_index)
        self._memory = self.register(len(contents), IBV_ACCESS_REMOTE_READ)
        self._memory.write(contents, len(contents))
        self.address: int = self._memory.buf
        self.rkey: int = self._memory.rkey


class VerbsReader(VerbsQueuePair):
    """The active end: READs of up to `bytes_max` into memory of its own."""

    def __init__(self, device: str, bytes_max: int, gid_index: int | None = None) -> None:
        super().__init__(device, gid_index)
        self._memory = self.register(bytes_max)

    def read(self, remote_address: int, rkey: int, length: int, timeout_s: float = 10.0) -> bytes:
        """The bytes at `remote_address`. ReadFailed; TimeoutError without a completion.

        Fills its own memory with 0xA5 first, so that bytes from before cannot pass for a result.
        """
        self._memory.write(b"\xa5" * length, length)
        self._ask(IBV_WR_RDMA_READ, remote_address, rkey, length, timeout_s)
        return bytes(self._memory.read(length, 0))

    def write(
        self, remote_address: int, rkey: int, content: bytes, timeout_s: float = 10.0
    ) -> None:
        """Tries a WRITE, which no holder allows. ReadFailed; TimeoutError without a completion."""
        self._memory.write(content, len(content))
        self._ask(IBV_WR_RDMA_WRITE, remote_address, rkey, len(content), timeout_s)

    def _ask(
        self, opcode: int, remote_address: int, rkey: int, length: int, timeout_s: float
    ) -> None:
        part = SGE(self._memory.buf, length, self._memory.lkey)
        request = SendWR(num_sge=1, sg=[part], opcode=opcode, send_flags=IBV_SEND_SIGNALED)
        request.set_wr_rdma(rkey, remote_address)
        self._queue_pair.post_send(request)
        status = self._completion(timeout_s)
        if status != IBV_WC_SUCCESS:
            raise ReadFailed(status)

    def _completion(self, timeout_s: float) -> int:
        until = time.monotonic() + timeout_s
        while True:
            count, completions = self._completions.poll(1)
            if count:
                return int(completions[0].status)
            if time.monotonic() > until:
                raise TimeoutError(f"no completion within {timeout_s:g} s")
            os.sched_yield()  # there may be one processor for both ends
