"""What this machine can do: memory copies, loopback TCP, a round trip over a Unix socket."""

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
_WARM_CHUNKS = 64


def memory_gbps(bytes_per_case: int) -> dict[str, float]:
    """GB/s of memcpy, of the fused copy and of the checksum, by page size."""
    return _native.limits(bytes_per_case)


def _stream_sender(port: int, chunks: int) -> None:
    with socket.create_connection(("127.0.0.1", port)) as out:
        block = memoryview(bytearray(os.urandom(_CHUNK_BYTES)))
        for _ in range(chunks + _WARM_CHUNKS):
            out.sendall(block)


def _drain(stream: socket.socket, room: memoryview, total_bytes: int) -> None:
    taken = 0
    while taken < total_bytes:
        got = stream.recv_into(room[: total_bytes - taken])
        if got == 0:
            raise ConnectionError("the sender ended early")
        taken += got


def loopback_tcp_gbps(streams: int, total_bytes: int) -> float:
    """GB/s from one process to another over `streams` sockets, in 1 MiB calls."""
    chunks = total_bytes // streams // _CHUNK_BYTES
    with socket.create_server(("127.0.0.1", 0), backlog=streams) as server:
        port = server.getsockname()[1]
        context = multiprocessing.get_context("fork")
        senders = [
            context.Process(target=_stream_sender, args=(port, chunks)) for _ in range(streams)
        ]
        for sender in senders:
            sender.start()
        accepted = [server.accept()[0] for _ in range(streams)]
        rooms = [memoryview(bytearray(_CHUNK_BYTES)) for _ in accepted]
        for stream, room in zip(accepted, rooms, strict=True):
            _drain(stream, room, _WARM_CHUNKS * _CHUNK_BYTES)
        threads = [
            threading.Thread(target=_drain, args=(stream, room, chunks * _CHUNK_BYTES))
            for stream, room in zip(accepted, rooms, strict=True)
        ]
        begin = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        took = time.perf_counter() - begin
        for stream in accepted:
            stream.close()
        for sender in senders:
            sender.join()
    return streams * chunks * _CHUNK_BYTES / took / 1e9


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
