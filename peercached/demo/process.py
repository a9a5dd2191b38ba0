"""Free ports, and daemons that never outlive the process that started them.

`python -m peercached.demo.process [options]` is the `peercached` command, tied to its parent.
"""

import contextlib
import ctypes
import os
import random
import signal
import socket
from collections import deque

_PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """From now on the kernel kills this process when the thread that started it ends.

    So that a demo or a test run that is killed itself leaves no daemon behind.
    """
    parent = os.getppid()
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    if os.getppid() != parent:  # it ended before we had said so
        os.kill(os.getpid(), signal.SIGKILL)


_given_lately: deque[int] = deque(maxlen=100)


def free_port(host: str) -> int:
    """A TCP port nobody uses on `host` now.

    Below the range from which the kernel picks ports for outgoing connections: else any
    connection of the machine may take it before our child does. DEMO_PORTS=20000-20999 narrows
    the choice, so that several who choose at the same time do not choose the same. Nor is one given
    twice soon: who asked first may not have bound it yet.
    """
    first, _, last = os.environ.get("DEMO_PORTS", "20000-31999").partition("-")
    for port in random.sample(range(int(first), int(last) + 1), 200):
        if port in _given_lately:
            continue
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
            _given_lately.append(port)
            return port
    raise RuntimeError(f"no free TCP port on {host} among 200 tried between {first} and {last}")


if __name__ == "__main__":
    from peercached.cli.daemon import main

    die_with_parent()
    main()
