"""The command tests/rdma/vm; options.py describes it."""

import signal
import sys
from types import FrameType

from harness.rdma_vm import VmError, machine, options, qemu, say, uml

_VM_FAILED = 125


def _leave(number: int, _frame: FrameType | None) -> None:
    sys.exit(128 + number)


def main() -> int:
    given = options.parse(sys.argv[1:])
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _leave)
    try:
        kernel = uml.kernel() if given.engine == "uml" else qemu.kernel()
        return 0 if given.prepare_only else machine.run(given, kernel)
    except VmError as error:
        say(str(error))
        return _VM_FAILED
