"""Prints which pages come and go: see docs/routers.md, "Events". Needs pyzmq and msgspec.

python subscribe.py HOST KV_EVENTS_PORT [SERVER_KEY CLIENT_PUBLIC_KEY CLIENT_SECRET_KEY]
"""

import sys
from typing import Any

import msgspec
import zmq

host, port, *keys = sys.argv[1:]


def connect(kind: int, at: int) -> Any:
    found: Any = zmq.Context.instance().socket(kind)
    if keys:
        found.curve_serverkey, found.curve_publickey, found.curve_secretkey = map(str.encode, keys)
    found.rcvhwm = 100_000  # batches that wait here while we read a replay
    found.connect(f"tcp://{host}:{at}")
    return found


def take(topic: bytes, number: int, payload: bytes) -> int:
    """Returns its number."""
    if topic == b"kv@":  # a snapshot begins
        print("forget all that this daemon has told", flush=True)
    else:
        for event in msgspec.msgpack.decode(payload)[1]:
            hashes = event.get("block_hashes", [])
            print(topic.decode(), event["type"], event.get("medium", ""), hashes, flush=True)
    return number


def replay(start: int) -> int:
    """Takes all batches from that number on. Returns the last one's number."""
    last = start - 1
    replays.send_multipart([b"", start.to_bytes(8, "big")])
    while True:
        _, topic, number, payload = replays.recv_multipart()
        if (n := int.from_bytes(number, "big", signed=True)) < 0:  # the end
            if topic:
                raise SystemExit(f"no replay from {start}: {topic.decode()}")
            return last
        last = take(topic, n, payload)


events = connect(zmq.SUB, int(port))
events.subscribe(b"")  # everything: numbers run over all topics
replays = connect(zmq.DEALER, int(port) + 1)  # a REQ would get the first answer only
events.recv_multipart()  # the subscription counts from here on
last = replay(0)  # has this batch, too
while True:
    topic, number, payload = events.recv_multipart()
    n = int.from_bytes(number, "big", signed=True)
    if n > last + 1:  # missed some
        last = replay(last + 1)
    if n > last:  # else the replay had it
        last = take(topic, n, payload)
