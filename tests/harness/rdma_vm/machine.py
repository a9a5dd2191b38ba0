"""One run of a machine: boot it, carry the command's streams, wait for its end."""

import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import BinaryIO

from harness.rdma_vm import VmError, qemu, say, uml
from harness.rdma_vm.options import Options

_BOOT_TIMEOUT_S = 300  # a busy machine needs a minute
# On top of the command's limit: for `timeout -k 5`, the last output and the shutdown.
_END_TIMEOUT_S = 30
_TIMED_OUT = 124
_KILLED = 128 + signal.SIGKILL
_NOBODY_READS = 128 + signal.SIGPIPE


def run(options: Options, kernel: Path) -> int:
    """The command's exit status, or 124 if it ran past its limit. Raises VmError."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rdma-vm-")))
        _write_job(folder, options)
        carriers = [_Carrier(sys.stdout.buffer), _Carrier(sys.stderr.buffer)]
        console = folder / "console"
        machine = _start(options, kernel, folder, [carrier.input for carrier in carriers])
        stack.callback(_end, machine)
        for carrier in carriers:
            carrier.input_is_passed_on()
        _wait(machine, folder, options.timeout_s, carriers)
        for carrier in carriers:
            carrier.join()
        if options.verbose:
            sys.stderr.write(console.read_text(errors="replace"))
        return _status(folder, options)


def _write_job(folder: Path, options: Options) -> None:
    for script in Path(__file__).with_name("guest").iterdir():
        shutil.copy(script, folder)
    shared_folder = Path.cwd().resolve()
    if shared_folder == Path("/"):
        raise VmError("the current directory is shared with the machine, and must not be /")
    settings = {
        "engine": options.engine,
        "nodes": options.nodes,
        "timeout_s": options.timeout_s,
        "shared_folder": shared_folder,
        "mhz": _processor_mhz(),
    }
    lines = [f"{name}={shlex.quote(str(value))}\n" for name, value in settings.items()]
    (folder / "settings").write_text("".join(lines))
    exports = [
        f"export {name}={shlex.quote(value)}\n"
        for name, value in os.environ.items()
        if name.isidentifier()
    ]
    where = f"cd {shlex.quote(str(shared_folder))}\n"
    (folder / "job").write_text(
        "".join(exports) + where + f"command=({shlex.join(options.command)})\n"
    )


def _processor_mhz() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("cpu MHz"):
            return line.partition(": ")[2]
    return "1000"


class _Carrier:
    """Copies the machine's output from `input` to one of our streams, as it arrives."""

    def __init__(self, output: BinaryIO) -> None:
        self._read_end, self.input = os.pipe()
        self._output = output
        self.nobody_reads = False
        self._thread = threading.Thread(target=self._carry, daemon=True)
        self._thread.start()

    def input_is_passed_on(self) -> None:
        os.close(self.input)

    def join(self) -> None:
        self._thread.join()

    def _carry(self) -> None:
        try:
            while piece := os.read(self._read_end, 1 << 16):
                self._output.write(piece)
                self._output.flush()
        except BrokenPipeError:
            self.nobody_reads = True


def _start(
    options: Options, kernel: Path, folder: Path, streams: list[int]
) -> subprocess.Popen[bytes]:
    """The machine's streams are the file descriptors 3 and 4 of its process."""
    first_stage = folder / f"first-{options.engine}.sh"
    if options.engine == "uml":
        first_stage.chmod(0o755)
        command = uml.boot_command(kernel, options.memory_mib, first_stage, folder)
    else:
        command = qemu.boot_command(kernel, options, first_stage, folder)
    renumbered = f'exec 3>&{streams[0]} 4>&{streams[1]}; exec "$@"'
    with (folder / "console").open("wb") as console:
        return subprocess.Popen(
            # If we are killed, the machine ends too.
            ["setpriv", "--pdeathsig", "TERM", "bash", "-c", renumbered, "rdma-vm", *command],
            stdin=subprocess.DEVNULL,
            stdout=console,
            stderr=console,
            pass_fds=streams,
            env={"PATH": os.environ["PATH"], "TMPDIR": _memory_folder(options.memory_mib)},
            start_new_session=True,
        )


def _memory_folder(memory_mib: int) -> str:
    """The folder for UML's file of guest memory: in RAM, if there is room for all of it."""
    for folder in ("/dev/shm", "/tmp", "/var/tmp"):
        about = os.statvfs(folder)
        runs_programs = not about.f_flag & os.ST_NOEXEC
        if runs_programs and about.f_bavail * about.f_frsize >= memory_mib << 20:
            return folder
    raise VmError(f"no room for {memory_mib} MiB in /dev/shm, /tmp or /var/tmp; try --mem")


def _wait(
    machine: subprocess.Popen[bytes], folder: Path, timeout_s: int, carriers: list["_Carrier"]
) -> None:
    """Waits until the machine ends by itself. Raises VmError if that takes too long."""
    ready = folder / "ready"
    until = time.monotonic() + _BOOT_TIMEOUT_S
    booting = True
    while machine.poll() is None:
        if booting and ready.exists():
            booting = False
            until = time.monotonic() + timeout_s + _END_TIMEOUT_S
        if time.monotonic() > until:
            what = f"did not start within {_BOOT_TIMEOUT_S} s" if booting else "did not end"
            raise _broken(folder, what)
        if any(carrier.nobody_reads for carrier in carriers):
            sys.exit(_NOBODY_READS)
        time.sleep(0.02)


def _end(machine: subprocess.Popen[bytes]) -> None:
    """Kills all processes of the machine: UML has some for its users' memory."""
    with suppress(ProcessLookupError):
        os.killpg(machine.pid, signal.SIGKILL)
    machine.wait()


def _status(folder: Path, options: Options) -> int:
    try:
        words = (folder / "status").read_text().split()
    except FileNotFoundError:
        raise _broken(folder, "broke off") from None
    status, ready_s, done_s = int(words[0]), float(words[1]), float(words[2])
    if options.verbose:
        say(f"booted in {ready_s:.1f} s, the command took {done_s - ready_s:.1f} s")
    if status == _KILLED and done_s - ready_s >= options.timeout_s:
        return _TIMED_OUT  # the command ignored the signal to end
    return status


def _broken(folder: Path, what: str) -> VmError:
    console = (folder / "console").read_text(errors="replace").splitlines()
    return VmError("\n".join([f"the machine {what}; its console ends:", *console[-30:]]))
