"""User Mode Linux: the kernel as a process. One processor; system calls cost microseconds."""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from harness.rdma_vm import VmError, kernels, packages, say

PROCESSORS = 1

# Part of the cached folder's name: raise it when the configuration below, or the patch, changes.
_VERSION = 4

_PATCH = Path(__file__).with_name("uml.patch")

_NEEDED = {"make": "make", "patch": "patch", "gcc": "gcc", "xz": "xz-utils", "rdma": "iproute2"}

# Options on top of the smallest configuration, by purpose.
_CONFIG = {
    "what Linux programs expect": """
        64BIT EXPERT MULTIUSER PRINTK BUG KALLSYMS BINFMT_ELF BINFMT_SCRIPT POSIX_TIMERS
        HIGH_RES_TIMERS NO_HZ_IDLE FUTEX EPOLL SIGNALFD TIMERFD EVENTFD AIO IO_URING
        ADVISE_SYSCALLS MEMBARRIER CROSS_MEMORY_ATTACH SYSVIPC POSIX_MQUEUE NAMESPACES
        NET_NS PID_NS USER_NS UTS_NS IPC_NS PROC_FS PROC_SYSCTL SYSFS TMPFS TMPFS_XATTR SHMEM
        DEVTMPFS FILE_LOCKING INOTIFY_USER TTY UNIX98_PTYS""",
    "this machine's files, consoles on our pipes, an orderly end": """
        HOSTFS OVERLAY_FS NULL_CHAN MCONSOLE MAGIC_SYSRQ""",
    "short turns for processes that poll": "DEBUG_KERNEL DEBUG_FS SCHED_DEBUG",
    "networks": """
        NET UNIX PACKET INET IPV6 NETDEVICES NET_CORE DUMMY MACVLAN VETH BRIDGE
        NET_SCHED NET_SCH_NETEM NET_SCH_PRIO NET_CLS_U32""",
    # rdma_rxe needs a kernel with PCI. UML has PCI over virtio, here without devices.
    "soft-RoCE": """
        VIRTIO_MENU VIRTIO_UML UML_PCI_OVER_VIRTIO CRYPTO CRYPTO_CRC32
        INFINIBAND INFINIBAND_USER_ACCESS INFINIBAND_ADDR_TRANS RDMA_RXE""",
    "TLS records made by the kernel": "TLS CRYPTO_AES CRYPTO_GCM",
    "dma-bufs without a device": "DMA_SHARED_BUFFER MEMFD_CREATE UDMABUF",
}


def kernel() -> Path:
    """The program `linux`; compiles it on first use, which takes some minutes."""
    folder = f"uml-{_VERSION}"
    if not (kernels.cache_folder() / folder).exists():
        packages.require(_NEEDED)
    return kernels.prepared(folder, _prepare) / "linux"


def boot_command(linux: Path, memory_mib: int, first_stage: Path, run_folder: Path) -> list[str]:
    """Consoles: 0 is our standard output, 1 and 2 are file descriptors 3 and 4.

    The kernel puts words that it does not know, here VM_RUN, into the environment of process 1.
    """
    return [
        *(str(linux), f"mem={memory_mib}M", "quiet", "panic=-1"),
        *("root=none", "rootfstype=hostfs", "rootflags=/", "ro", f"init={first_stage}"),
        *(f"uml_dir={run_folder}/", "umid=uml"),
        *("con=null", "con0=null,fd:1", "con1=null,fd:3", "con2=null,fd:4"),
        f"VM_RUN={run_folder}",
    ]


def _prepare(work: Path, result: Path) -> None:
    source = packages.newest("linux-source")
    root = work / "root"
    packages.unpack([source, "flex", "bison", "m4", "libsigsegv2", "bc"], root)
    say(f"compiling User Mode Linux from {source} (once, some minutes)")
    tarball = next(root.glob("usr/src/*.tar.xz"))
    subprocess.run(["tar", "-xJf", tarball], cwd=work, check=True)
    tree = work / source
    _run(tree, os.environ, "patch", "-p1", "--fuzz=0", "-i", str(_PATCH))
    symbols = " ".join(_CONFIG.values()).split()
    wanted = work / "wanted"
    wanted.write_text("".join(f"CONFIG_{symbol}=y\n" for symbol in symbols))
    environment = _with_tools_of(root) | {"KCONFIG_ALLCONFIG": str(wanted)}
    _run(tree, environment, "make", "ARCH=um", "allnoconfig")
    in_force = (tree / ".config").read_text().splitlines()
    if absent := [symbol for symbol in symbols if f"CONFIG_{symbol}=y" not in in_force]:
        raise VmError(f"{source} has no {' '.join(absent)}")
    _run(tree, environment, "make", "ARCH=um", f"-j{os.cpu_count()}", "linux")
    subprocess.run(["strip", "-o", result / "linux", tree / "linux"], check=True)


def _run(folder: Path, environment: Mapping[str, str], *command: str) -> None:
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise VmError(f"{' '.join(command)} failed:\n{done.stdout[-4000:]}")


def _with_tools_of(root: Path) -> dict[str, str]:
    """An environment with the build tools that `unpack` put below `root`."""
    return os.environ | {
        "PATH": f"{root}/usr/bin:{os.environ['PATH']}",
        "LD_LIBRARY_PATH": f"{root}/usr/lib/x86_64-linux-gnu",
        "BISON_PKGDATADIR": f"{root}/usr/share/bison",
        "M4": f"{root}/usr/bin/m4",
    }
