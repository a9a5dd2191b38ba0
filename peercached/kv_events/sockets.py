"""Sends the events to subscribers, and answers those that have missed some.

One thread has all sockets of ZMQ, in a context of its own. So what strangers send costs no other
thread time. We listen ourselves (doorway.py), because ZMQ has no bound for connections. Frames are
those of vLLM's ZmqEventPublisher (vllm/distributed/kv_events.py):

    port       PUB      topic, number (8 bytes, big-endian), payload
                        without events for PULSE_S: a batch of none, so that a subscriber learns the
                        number, and sees a gap soon
    port + 1   ROUTER   request:  b"", first missed number
                        answers:  b"", topic, number, payload; at last: b"", reason, -1, b""

The reason is empty, or says why there is no replay.
"""

from __future__ import annotations

import logging
import struct
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import zmq
from zmq.utils.monitor import parse_monitor_message

from peercached.config.kv_event_keys import CurveKeys
from peercached.kv_events.doorway import Doorway
from peercached.kv_events.shared_stream import SharedStream
from peercached.kv_events.stream import Batch, FromTheFuture

if TYPE_CHECKING:
    from peercached._native import Engine

log = logging.getLogger(__name__)

# Changes are gathered for so long: short beside a prefill, long beside the cost of a batch.
GATHER_S = 0.02
# Without events, the pause before the next look.
IDLE_S = 0.1
# A subscriber that has lost the last batches sees the gap with the next one.
PULSE_S = 1.0
DRAIN_BYTES = 4 << 20
# A subscriber that is so many batches (of up to 64 KiB) behind misses the next ones.
BEHIND_BATCHES_MAX = 256
# A connection that subscribes more often is ended: ZMQ keeps its topics in memory.
SUBSCRIPTIONS_MAX = 4096
REQUEST_BYTES_MAX = 1024
REPLAYS_MAX = 8  # at a time
REPLAYS_WAITING_MAX = 64
# A subscriber that takes no part of its replay for so long gets no more of it.
REPLAY_STALL_S = 10.0
REPLAY_BATCHES_PER_TURN = 32
# A connection must shake hands in this time, and answer heartbeats.
HANDSHAKE_MS = 5000
HEARTBEAT_MS = 5000
HEARTBEAT_TIMEOUT_MS = 20_000

_END = (-1).to_bytes(8, "big", signed=True)
_NUMBER_BYTES = 8
_NO_EVENTS = struct.Struct(">BBdB")  # msgpack of [time, []]
_UP = zmq.EVENT_ACCEPTED
_DOWN = zmq.EVENT_DISCONNECTED
_REFUSED = (
    zmq.EVENT_HANDSHAKE_FAILED_AUTH
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
)


@dataclass
class Counters:
    """Since the start. Other threads read them."""

    subscribers: int = 0  # now: connections that have subscribed
    batches: int = 0
    events: int = 0
    bytes: int = 0
    replays_refused: int = 0  # of the future, malformed, or too many at a time
    replays_stalled: int = 0
    handshakes_refused: int = 0
    subscribers_ended: int = 0  # that have subscribed too often
    shut_crowd: int = 0  # times that a port took no more connections
    next_number: int = 0


@dataclass
class Guard:
    """Who may subscribe. `clients`: the public keys that may, asked at each handshake."""

    keys: CurveKeys
    clients: Callable[[], set[bytes]]


@dataclass
class _Port:
    socket: Any
    monitor: Any
    door: Doorway


@dataclass
class _Replay:
    client: bytes
    batches: Iterator[Batch]
    next: Batch | None = None
    moved_at: float = 0.0


class EventSockets:
    """`ask`: a node (its index) is to be asked for the names of these pages. It is called on the
    thread of the sockets."""

    def __init__(
        self,
        engine: Engine,
        host: str,
        port: int,
        stream: SharedStream,
        guard: Guard | None,
        ask: Callable[[int, bytes], None],
        node_id: str,
        on_told: Callable[[], None],
    ) -> None:
        """Binds the ports. OSError."""
        self.counters = Counters(next_number=stream.next)
        self._engine = engine
        self._stream = stream
        self._guard = guard
        self._ask = ask
        self._on_told = on_told
        self._pulse_topic = f"kv@{node_id}@".encode()
        self._sent_at = 0.0
        self._replays: dict[bytes, _Replay] = {}
        self._waiting: deque[tuple[bytes, int]] = deque()
        self._subscriptions: Counter[int] = Counter()  # by connection, its descriptor
        self._context = zmq.Context()
        self._thread = threading.Thread(target=self._run, name="kv-events", daemon=True)
        self._stop_here = self._context.socket(zmq.PAIR)
        self._stop_here.bind("inproc://stop")
        self._stop_there = self._context.socket(zmq.PAIR)
        self._stop_there.connect("inproc://stop")
        self._zap: Any = None
        try:
            if guard is not None:
                self._zap = self._context.socket(zmq.REP)
                self._zap.bind("inproc://zeromq.zap.01")
            pub = self._context.socket(zmq.XPUB)
            pub.setsockopt(zmq.SNDHWM, BEHIND_BATCHES_MAX)
            pub.setsockopt(zmq.XPUB_VERBOSE, 1)
            router = self._context.socket(zmq.ROUTER)
            router.setsockopt(zmq.SNDHWM, REPLAY_BATCHES_PER_TURN)
            router.setsockopt(zmq.RCVHWM, REPLAYS_WAITING_MAX)
            router.setsockopt(zmq.ROUTER_MANDATORY, 1)
            self._pub = self._open(pub, host, port)
            self._router = self._open(router, host, port + 1)
        except zmq.ZMQError as error:
            self._context.destroy(linger=0)
            raise OSError(error.errno, str(error)) from error
        except OSError:
            self._context.destroy(linger=0)
            raise

    def _open(self, socket: Any, host: str, port: int) -> _Port:
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.MAXMSGSIZE, REQUEST_BYTES_MAX)
        socket.setsockopt(zmq.HANDSHAKE_IVL, HANDSHAKE_MS)
        socket.setsockopt(zmq.HEARTBEAT_IVL, HEARTBEAT_MS)
        socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, HEARTBEAT_TIMEOUT_MS)
        if self._guard is not None:
            socket.setsockopt(zmq.CURVE_SERVER, 1)
            socket.setsockopt(zmq.CURVE_SECRETKEY, self._guard.keys.private)
            socket.setsockopt(zmq.ZAP_DOMAIN, b"kv-events")
        monitor = socket.get_monitor_socket(_UP | _DOWN | _REFUSED)
        door = Doorway(host, port)
        socket.setsockopt(zmq.USE_FD, door.descriptor())
        socket.bind("tcp://127.0.0.1:*")  # no address is used beside the descriptor
        return _Port(socket, monitor, door)

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout_s: float) -> None:
        """Blocks until the thread has ended, at most so long."""
        if self._thread.is_alive():
            self._stop_there.send(b"")
            self._thread.join(timeout_s)

    # --- on the thread

    def _run(self) -> None:
        poller = zmq.Poller()
        for port in (self._pub, self._router):
            poller.register(port.socket, zmq.POLLIN)
            poller.register(port.monitor, zmq.POLLIN)
        poller.register(self._stop_here, zmq.POLLIN)
        if self._zap is not None:
            poller.register(self._zap, zmq.POLLIN)
        look_at = quiet_since = time.monotonic()
        try:
            while True:
                pause_s = 0.001 if self._replays else max(look_at - time.monotonic(), 0)
                ready = dict(poller.poll(int(pause_s * 1000)))
                if self._stop_here in ready:
                    return
                self._hear(ready)
                now = time.monotonic()
                if now >= look_at:
                    if self._tell(now):
                        quiet_since = now
                    look_at = now + (GATHER_S if now - quiet_since < 1.0 else IDLE_S)
                self._replay(now)
        except Exception:
            log.exception("events of pages end: restart the daemon")
        finally:
            for port in (self._pub, self._router):
                port.door.close()
            self._context.destroy(linger=0)

    def _hear(self, ready: dict[Any, int]) -> None:
        if self._zap is not None and self._zap in ready:
            self._judge()
        # In this order: a connection that has subscribed was told of before.
        subscribed = self._subscribed() if self._pub.socket in ready else []
        for port in (self._pub, self._router):
            if port.monitor in ready or subscribed:
                self._watch(port)
        for connection in subscribed:
            self._count(connection)
        if self._router.socket in ready:
            self._take_request()

    def _judge(self) -> None:
        """A handshake, as ZAP (rfc.zeromq.org/spec/27) tells of it."""
        frames = self._zap.recv_multipart()
        ok = (
            self._guard is not None
            and len(frames) == 7
            and frames[5] == b"CURVE"
            and frames[6] in self._guard.clients()
        )
        status, text = (b"200", b"OK") if ok else (b"400", b"not a key of this cluster")
        self._zap.send_multipart([b"1.0", frames[1], status, text, b"", b""])

    def _watch(self, port: _Port) -> None:
        while port.monitor.poll(0):
            event = parse_monitor_message(port.monitor.recv_multipart())
            kind, connection = event["event"], int(event["value"])
            if kind == _UP:
                port.door.came(connection)
            elif kind & _REFUSED:
                self.counters.handshakes_refused += 1
            elif kind & _DOWN:
                port.door.went(connection)
                if port is self._pub:
                    self._subscriptions.pop(connection, None)
        self.counters.shut_crowd = self._pub.door.shut + self._router.door.shut
        self.counters.subscribers = len(self._subscriptions)

    def _subscribed(self) -> list[int]:
        """The connections that have subscribed, once for each time."""
        connections: list[int] = []
        while len(connections) < SUBSCRIPTIONS_MAX and self._pub.socket.poll(0):
            message = self._pub.socket.recv(copy=False)
            if message.buffer[:1] == b"\x01":
                connections.append(message.get(zmq.SRCFD))
        return connections

    def _count(self, connection: int) -> None:
        if connection in self._pub.door.connections:
            self._subscriptions[connection] += 1
            if self._subscriptions[connection] == SUBSCRIPTIONS_MAX + 1:
                self._pub.door.end(connection)
                self.counters.subscribers_ended += 1
            self.counters.subscribers = len(self._subscriptions)

    def _tell(self, now: float) -> bool:
        """Whether there was something to tell."""
        any_told, more = False, True
        while more:
            batches, more = self._stream.drain(DRAIN_BYTES)
            for batch, events in batches:
                self._publish(batch)
                self.counters.events += events
            any_told |= bool(batches)
        if now - self._sent_at >= PULSE_S:
            no_events = _NO_EVENTS.pack(0x92, 0xCB, time.time(), 0x90)
            self._publish(self._stream.append(self._pulse_topic, no_events))
        self.counters.next_number = self._stream.next
        for holder, digests in self._engine.kv_questions():
            self._ask(holder, digests)
        if any_told:
            self._on_told()
        return any_told

    def _publish(self, batch: Batch) -> None:
        number = batch.number.to_bytes(_NUMBER_BYTES, "big")
        self._pub.socket.send_multipart([batch.topic, number, batch.payload])
        self.counters.batches += 1
        self.counters.bytes += len(batch.payload)
        self._sent_at = time.monotonic()

    # --- replays

    def _take_request(self) -> None:
        frames = self._router.socket.recv_multipart()
        client = frames[0]
        if len(frames) != 3 or frames[1] != b"" or len(frames[2]) != _NUMBER_BYTES:
            return self._refuse(client, "a request is an empty frame and a number of 8 bytes")
        if len(self._waiting) >= REPLAYS_WAITING_MAX:
            return self._refuse(client, f"{REPLAYS_WAITING_MAX} replays wait already")
        self._waiting.append((client, int.from_bytes(frames[2], "big")))

    def _refuse(self, client: bytes, why: str) -> None:
        self.counters.replays_refused += 1
        self._send(client, [b"", why.encode(), _END, b""])

    def _send(self, client: bytes, frames: list[bytes]) -> bool | None:
        """False: there is no room now. None: the client has gone."""
        try:
            self._router.socket.send_multipart([client, *frames], zmq.NOBLOCK)
        except zmq.Again:
            return False
        except zmq.ZMQError:
            return None
        return True

    def _replay(self, now: float) -> None:
        for _ in range(len(self._waiting)):
            if len(self._replays) >= REPLAYS_MAX:
                break
            client, start = self._waiting.popleft()
            if client in self._replays:
                self._waiting.append((client, start))  # one at a time
            else:
                self._begin(client, start, now)
        for replay in list(self._replays.values()):
            if self._go_on(replay, now):
                del self._replays[replay.client]

    def _begin(self, client: bytes, start: int, now: float) -> None:
        try:
            batches = self._stream.replay(start)
        except FromTheFuture as error:
            return self._refuse(client, f"no such batch yet: {error}")
        self._replays[client] = _Replay(client, batches, moved_at=now)

    def _go_on(self, replay: _Replay, now: float) -> bool:
        """Whether it is over."""
        for _ in range(REPLAY_BATCHES_PER_TURN):
            batch = replay.next or next(iter(self._stream.take(replay.batches, 1)), None)
            if batch is None:
                frames = [b"", b"", _END, b""]
            else:
                number = batch.number.to_bytes(_NUMBER_BYTES, "big")
                frames = [b"", batch.topic, number, batch.payload]
            sent = self._send(replay.client, frames)
            if sent is None:
                return True
            if not sent:
                replay.next = batch
                if now - replay.moved_at < REPLAY_STALL_S:
                    return False
                self.counters.replays_stalled += 1
                return True
            replay.next = None
            replay.moved_at = now
            if batch is None:
                return True
        return False
