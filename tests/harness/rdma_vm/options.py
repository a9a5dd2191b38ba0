"""The command line of tests/rdma/vm."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

from harness.rdma_vm import uml

DESCRIPTION = """\
Runs COMMAND in a virtual machine that has RDMA devices (soft-RoCE).

COMMAND runs as root in the current directory, with this environment and standard input from
/dev/null. It sees all files of this machine; what it writes is dropped with the machine, except
below the current directory. It finds, in one network namespace,

  rxe0, rxe1, ...      one RDMA device per node, with a RoCE v2 GID of its IPv4 address
  rdma0, rdma1, ...    their network devices, 10.99.0.1/24, 10.99.0.2/24, ...
  RDMA_VM=uml|qemu and RDMA_VM_NODES=N in its environment

With --virtual-time its clocks count instructions, whatever this machine does meanwhile: rates then
compare the work that programs need, and say nothing about memory or caches.

"ip link set rdma0 down" pulls a cable; "tc qdisc add dev rdma0 root netem loss 10%" is a bad one.
"""

EPILOG = """\
Exit status: the command's; 124 when it ran past --timeout; 125 when the machine itself could not
be made or broke off (the reason is on standard error); 128+n when a signal ended us.

What is prepared is kept in ${XDG_CACHE_HOME:-~/.cache}/peercached/rdma-vm; remove that folder to
take newer kernels.
"""

NODES_MAX = 16
MEMORY_MIB_MIN = 256


@dataclass(frozen=True)
class Options:
    """The options of one run. `timeout_s` counts from the start of the command."""

    command: Sequence[str]
    engine: str
    nodes: int
    timeout_s: int
    memory_mib: int
    processors: int
    virtual_time: bool
    prepare_only: bool
    verbose: bool


def _number(least: int, most: int) -> type[int]:
    def parse(text: str) -> int:
        if not text.isdecimal() or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"{text!r} is not a number from {least} to {most}")
        return int(text)

    return parse  # type: ignore[return-value]


def parse(arguments: Sequence[str]) -> Options:
    """Exits with status 2 and a message if the arguments are invalid."""
    parser = argparse.ArgumentParser(
        "tests/rdma/vm",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--engine", choices=("uml", "qemu"), default="uml", help="default: uml")
    add("--nodes", type=_number(1, NODES_MAX), default=2, metavar="N", help="default: 2")
    add("--timeout", type=_number(1, 86400), default=600, metavar="S", help="default: 600 seconds")
    add("--mem", type=_number(MEMORY_MIB_MIN, 1 << 20), default=2048, metavar="M", help="MiB, 2048")
    add("--smp", type=_number(1, 64), default=2, metavar="N", help="processors (qemu), 2")
    add("--virtual-time", action="store_true", help="1 ns per instruction (qemu, --smp 1)")
    add("--prepare", action="store_true", help="only make the kernel")
    add("--verbose", action="store_true", help="show the guest's console and the times taken")
    add("command", nargs=argparse.REMAINDER, metavar="-- COMMAND")
    given = parser.parse_args(arguments)
    command = given.command[1:] if given.command[:1] == ["--"] else given.command
    if bool(command) == given.prepare:
        parser.error("a command, or --prepare")
    if given.virtual_time and (given.engine, given.smp) != ("qemu", 1):
        parser.error("--virtual-time needs --engine qemu --smp 1")
    return Options(
        command=command,
        engine=given.engine,
        nodes=given.nodes,
        timeout_s=given.timeout,
        memory_mib=given.mem,
        processors=uml.PROCESSORS if given.engine == "uml" else given.smp,
        virtual_time=given.virtual_time,
        prepare_only=given.prepare,
        verbose=given.verbose,
    )
