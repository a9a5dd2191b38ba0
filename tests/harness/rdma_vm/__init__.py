"""A machine with RDMA, for machines that have none: Linux with soft-RoCE as an ordinary process.

`tests/rdma/vm -- COMMAND` boots a kernel that has rdma_rxe, gives it this machine's files and
runs the command there. Nothing is loaded into this machine's kernel, and no KVM is needed.

    command.py    tests/rdma/vm; its options are in options.py
    packages.py   Debian packages: installs some, only unpacks others
    kernels.py    the cache; a kernel is prepared once, under a lock
    uml.py        User Mode Linux, compiled from Debian's source: one processor, near full speed
    qemu.py       Debian's own kernel under emulation: several processors, 10 to 20 times slower
    machine.py    one run: boot, carry the streams, end
    guest/        what the guest runs before the command

Standard library only, because it runs before a virtual environment exists.
"""

import sys


class VmError(Exception):
    """The machine could not be made, or it ended early. The command's status is unknown."""


def say(text: str) -> None:
    print(f"rdma-vm: {text}", file=sys.stderr, flush=True)
