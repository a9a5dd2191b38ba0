"""The limits of this machine: memory copies, loopback TCP, and a Unix socket's round trip."""

import multiprocessing
import os
import socket
import statistics
import threading
import time
from collections.abc import Callable
from functools import partial

from peercached import _native

_CHUNK_BYTES = 1 << 20
# Real pages come from memory and go to memory. A block that stays in the cache would measure the
# cache instead.
_RING_BYTES = 256 << 20
_WARM_BYTES = _RING_BYTES


def memory_gbps(bytes_per_case: int) -> dict[str, float]:
    """GB/s of memcpy, of the fused copy and of the checksum, by page size."""
    return _native.limits(bytes_per_case)


def _stream_sender(port: int, ring: memoryview, total_bytes: int) -> None:
    with socket.create_connection(("127.0.0.1", port)) as out:
        for at in range(0, total_bytes, _CHUNK_BYTES):
            place = at % _RING_BYTES
            out.sendall(ring[place : place + _CHUNK_BYTES])


def _send_all(port: int, streams: int, bytes_each: int) -> None:
    ring = memoryview(bytearray(os.urandom(_CHUNK_BYTES)) * (_RING_BYTES // _CHUNK_BYTES))
    threads = [
        threading.Thread(target=_stream_sender, args=(port, ring, bytes_each))
        for _ in range(streams)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _drain(stream: socket.socket, ring: memoryview, total_bytes: int) -> None:
    taken = 0
    while taken < total_bytes:
        place = taken % _RING_BYTES
        room = min(_CHUNK_BYTES, _RING_BYTES - place, total_bytes - taken)
        got = stream.recv_into(ring[place : place + room])
        if got == 0:
            raise ConnectionError("the sender ended early")
        taken += got


def loopback_tcp_gbps(streams: int, total_bytes: int) -> float:
    """GB/s from one process to another over `streams` sockets, in 1 MiB calls."""
    each = total_bytes // streams // _CHUNK_BYTES * _CHUNK_BYTES
    with socket.create_server(("127.0.0.1", 0), backlog=streams) as server:
        port = server.getsockname()[1]
        sender = multiprocessing.get_context("fork").Process(
            target=_send_all, args=(port, streams, each + _WARM_BYTES)
        )
        sender.start()
        accepted = [server.accept()[0] for _ in range(streams)]
        ring = memoryview(bytearray(_RING_BYTES))

        def drain_all(bytes_each: int) -> None:
            threads = [
                threading.Thread(target=_drain, args=(stream, ring, bytes_each))
                for stream in accepted
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

        drain_all(_WARM_BYTES)  # touches the memory and opens the TCP windows
        begin = time.perf_counter()
        drain_all(each)
        took = time.perf_counter() - begin
        for stream in accepted:
            stream.close()
        sender.join()
    return streams * each / took / 1e9


def median_of(measure: Callable[[], float], repeats: int) -> float:
    return statistics.median(measure() for _ in range(repeats))


def best_loopback_gbps(total_bytes: int, repeats: int = 3) -> dict[int, float]:
    """Streams -> median GB/s, for one and two streams."""
    return {n: median_of(partial(loopback_tcp_gbps, n, total_bytes), repeats) for n in (1, 2)}


def _echo(peer: socket.socket, count: int) -> None:
    for _ in range(count):
        peer.sendall(peer.recv(64))


def unix_round_trip_us(count: int = 5000) -> float:
    """Median round trip of 64 bytes between two processes over a Unix socket."""
    ours, theirs = socket.socketpair()
    child = multiprocessing.get_context("fork").Process(target=_echo, args=(theirs, count))
    child.start()
    theirs.close()
    took: list[float] = []
    for _ in range(count):
        begin = time.perf_counter()
        ours.sendall(b"x" * 64)
        ours.recv(64)
        took.append(time.perf_counter() - begin)
    child.join()
    ours.close()
    return statistics.median(took) * 1e6
