"""A router's half of the events of pages: subscribes, notices gaps, and asks for what it missed.

The classes are vLLM's (vllm/distributed/kv_events.py). tests/vllm uses vLLM's own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import zmq

END = -1
WAIT_MS = 10_000


class BlockStored(msgspec.Struct, tag=True):
    block_hashes: list[bytes | int]
    parent_block_hash: bytes | int | None
    token_ids: list[int]
    block_size: int
    lora_id: int | None
    medium: str | None
    lora_name: str | None
    locality: str | None = None
    ownership: str | None = None


class BlockRemoved(msgspec.Struct, tag=True):
    block_hashes: list[bytes | int]
    medium: str | None


class AllBlocksCleared(msgspec.Struct, tag=True):
    pass


class KVEventBatch(msgspec.Struct, array_like=True):
    ts: float
    events: list[BlockStored | BlockRemoved | AllBlocksCleared]
    data_parallel_rank: int | None = None


Decode = Callable[[bytes], Any]
Place = tuple[str, str, str]  # node, namespace, medium


class Picture:
    """The pages of each place, as the events say that were applied."""

    def __init__(self, decode: Decode | None = None) -> None:
        self._decode = decode or msgspec.msgpack.Decoder(KVEventBatch).decode
        self.picture: dict[Place, set[bytes | int]] = {}
        self.block_sizes: dict[bytes | int, int] = {}
        self.localities: dict[str, set[str | None]] = {}
        self.batches = 0
        self.events = 0
        self.bytes = 0
        self.times: list[float] = []

    def apply(self, topic: bytes, payload: bytes) -> None:
        self.batches += 1
        self.bytes += len(payload)
        batch = self._decode(payload)
        self.times.append(batch.ts)
        if topic == b"kv@":  # a snapshot begins: nothing counts that was told before
            self.picture.clear()
            return
        _, node, namespace = topic.decode().split("@", 2)
        event: Any
        for event in batch.events:
            kind = type(event).__name__
            if kind == "AllBlocksCleared":
                self.events += 1
                for place in [one for one in self.picture if one[:2] == (node, namespace)]:
                    del self.picture[place]
                continue
            self.events += len(event.block_hashes)
            held = self.picture.setdefault((node, namespace, event.medium), set())
            if kind == "BlockStored":
                held.update(event.block_hashes)
                for each in event.block_hashes:
                    self.block_sizes[each] = event.block_size
                self.localities.setdefault(node, set()).add(getattr(event, "locality", None))
            else:
                held.difference_update(event.block_hashes)

    def held(self, node: str, namespace: str = "test", medium: str = "") -> set[bytes | int]:
        """The hashes of this node, in this medium or in any."""
        return {
            each
            for (one, ns, where), hashes in self.picture.items()
            if (one, ns) == (node, namespace) and medium in ("", where)
            for each in hashes
        }

    def known(self) -> dict[Place, set[bytes | int]]:
        """The picture without places that have nothing."""
        return {place: hashes for place, hashes in self.picture.items() if hashes}


class Subscriber(Picture):
    """`behind`: batches that ZMQ keeps for us; more are lost. `keys`: (server, public, secret), in
    Z85."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        keys: tuple[str, str, str] | None = None,
        topic: bytes = b"",
        behind: int = 100_000,
        decode: Decode | None = None,
    ) -> None:
        super().__init__(decode)
        self._context = zmq.Context()
        self.last = -1
        self.gaps = 0
        self.repairs = 0
        self._events_at = f"tcp://{host}:{port}"
        self.socket = self._open(zmq.SUB, keys)
        self.socket.setsockopt(zmq.RCVHWM, behind)
        self.socket.setsockopt(zmq.SUBSCRIBE, topic)
        self.connect()
        self._replay = self._open(zmq.DEALER, keys)
        self._replay.connect(f"tcp://{host}:{port + 1}")

    def _open(self, kind: int, keys: tuple[str, str, str] | None) -> Any:
        socket = self._context.socket(kind)
        socket.setsockopt(zmq.LINGER, 0)
        if keys is not None:
            server, public, secret = (key.encode() for key in keys)
            socket.setsockopt(zmq.CURVE_SERVERKEY, server)
            socket.setsockopt(zmq.CURVE_PUBLICKEY, public)
            socket.setsockopt(zmq.CURVE_SECRETKEY, secret)
        return socket

    def connect(self) -> None:
        self.socket.connect(self._events_at)

    def cut(self) -> None:
        """Loses what comes until `connect`."""
        self.socket.disconnect(self._events_at)

    def close(self) -> None:
        self._context.destroy(linger=0)

    def __enter__(self) -> Subscriber:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def take(self, wait_ms: int = 100) -> int:
        """Takes what has come, and repairs gaps. Returns the batches."""
        taken = 0
        while self.socket.poll(wait_ms if taken == 0 else 0):
            topic, number, payload = self.socket.recv_multipart()
            taken += 1
            seq = int.from_bytes(number, "big", signed=True)
            if self.last >= 0 and seq > self.last + 1:
                self.gaps += 1
                self.repair()
            if seq > self.last:
                self.apply(topic, payload)
                self.last = seq
        return taken

    def begin(self) -> str:
        """Asks for all that is there, as a new router does."""
        self.last = -1
        return self.repair()

    def repair(self) -> str:
        """Asks for all after the last batch. Returns the reason if there is no replay."""
        self.repairs += 1
        for topic, seq, payload in self.replay(self.last + 1):
            if seq == END:
                return topic.decode()
            if seq > self.last:
                self.apply(topic, payload)
                self.last = seq
        raise AssertionError("the replay did not end")

    def replay(self, start: int) -> Iterator[tuple[bytes, int, bytes]]:
        """The frames of a replay, up to and with its end."""
        self._replay.send_multipart([b"", start.to_bytes(8, "big")])
        while True:
            assert self._replay.poll(WAIT_MS), f"no answer to a replay from {start}"
            empty, topic, number, payload = self._replay.recv_multipart()
            assert empty == b""
            seq = int.from_bytes(number, "big", signed=True)
            yield topic, seq, payload
            if seq == END:
                return

    def send(self, frames: list[bytes]) -> None:
        """A request for a replay, which may be malformed."""
        self._replay.send_multipart(frames)

    def ask(self, frames: list[bytes]) -> bytes:
        """Sends it, and returns the reason of the refusal."""
        self.send(frames)
        assert self._replay.poll(WAIT_MS), f"no answer to {frames!r:.80}"
        _, reason, number, _ = self._replay.recv_multipart()
        assert int.from_bytes(number, "big", signed=True) == END
        return bytes(reason)

    def answers(self, wait_ms: int) -> bool:
        """Whether a request for a replay is answered."""
        try:
            self._replay.send_multipart([b"", bytes(8)], zmq.NOBLOCK)
        except zmq.Again:
            return False  # no connection has shaken hands
        return bool(self._replay.poll(wait_ms))
