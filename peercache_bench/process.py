"""Free ports, and daemons that never outlive the process that started them.

`python -m peercache_bench.process [options]` runs `peercached` so that it dies with its parent.
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
    """Makes the kernel kill this process when the thread that started it ends.

    So a bench or a test run leaves no daemon behind when it is killed itself.
    """
    parent = os.getppid()
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    if os.getppid() != parent:  # the parent ended before the prctl call
        os.kill(os.getpid(), signal.SIGKILL)


_given_lately: deque[int] = deque(maxlen=100)


def free_port(host: str, in_a_row: int = 1) -> int:
    """A TCP port that is free on `host` now: the first of so many in a row.

    It is below the kernel's range of ports for outgoing connections. Otherwise any
    such connection could take it before our child binds it. BENCH_PORTS=20000-20999 narrows the
    range, so that concurrent runs choose different ports. A port is not returned twice in a short
    time, because the first caller may not have bound it yet.
    """
    first, _, last = os.environ.get("BENCH_PORTS", "20000-31999").partition("-")
    for port in random.sample(range(int(first), int(last) + 2 - in_a_row), 200):
        ports = range(port, port + in_a_row)
        if any(each in _given_lately for each in ports):
            continue
        with contextlib.ExitStack() as probes, contextlib.suppress(OSError):
            for each in ports:
                probe = probes.enter_context(socket.socket())
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind((host, each))
            _given_lately.extend(ports)
            return port
    raise RuntimeError(f"no free TCP port on {host} among 200 tried between {first} and {last}")


if __name__ == "__main__":
    from peercached.cli.daemon import main

    die_with_parent()
    main()
