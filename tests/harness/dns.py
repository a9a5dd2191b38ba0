"""A name server for tests: `python dns.py FILE ADDRESS`.

FILE is JSON, and is read for each question:

    {"delay_s": 0, "names": {"heads": ["10.77.0.1", "10.77.0.2"]}}

It prints a line when it is ready. It answers for IPv4 addresses. All other names do not exist.
Without "names" it answers nothing.
"""

import json
import socket
import struct
import sys
import threading
import time
from pathlib import Path

_A, _IN, _NO_SUCH_NAME = 1, 1, 3


def answer(question: bytes, names: dict[str, list[str]]) -> bytes:
    """RFC 1035, section 4."""
    at, labels = 12, []
    while question[at]:
        labels.append(question[at + 1 : at + 1 + question[at]].decode())
        at += 1 + question[at]
    end = at + 5
    kind = struct.unpack(">H", question[at + 1 : at + 3])[0]
    name = ".".join(labels).lower()
    found = names.get(name, []) if kind == _A else []
    flags = 0x8180 | (0 if name in names else _NO_SUCH_NAME)
    head = question[:2] + struct.pack(">HHHHH", flags, 1, len(found), 0, 0)
    records = (
        struct.pack(">HHHIH", 0xC00C, _A, _IN, 1, 4) + socket.inet_aton(one) for one in found
    )
    return head + question[12:end] + b"".join(records)


def main(file: Path, address: str) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as door:
        door.bind((address, 53))
        print("ready", flush=True)

        def serve(question: bytes, who: tuple[str, int]) -> None:
            told = json.loads(file.read_text())
            time.sleep(told["delay_s"])
            if "names" in told:
                door.sendto(answer(question, told["names"]), who)

        while True:
            question, who = door.recvfrom(512)
            threading.Thread(target=serve, args=(question, who), daemon=True).start()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
