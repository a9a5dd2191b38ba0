"""Debian's own kernel in QEMU's emulation: several processors, 10 to 20 times slower.

Its initramfs has busybox and the modules for booting and for RDMA. Each run appends a second one
with the first stage. The kernel unpacks both in order.
"""

import lzma
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from harness.rdma_vm import VmError, initramfs, kernels, packages
from harness.rdma_vm.options import Options

# Part of the cached folder's name: raise it when _prepare() changes.
_VERSION = 2

_NEEDED = {"qemu-system-x86_64": "qemu-system-x86", "rdma": "iproute2"}

# Each instruction takes 1 ns, and sleeping takes no real time. Without fast string moves the kernel
# copies 8 bytes per instruction. With them it would copy one, and copying would dominate all rates.
_VIRTUAL_TIME = (
    *("-accel", "tcg,thread=single", "-cpu", "max,-erms,-fsrm"),
    *("-icount", "shift=0,sleep=off"),
)

_MODULES = (
    # For this machine's files and our streams.
    *("virtio_pci", "virtio_console", "9pnet_virtio", "9p", "overlay"),
    # For RDMA. crc32_generic makes packet checksums, because emulated vector code is slow.
    *("crc32_generic", "dummy", "macvlan", "veth", "bridge", "sch_netem", "sch_prio", "cls_u32"),
    *("ib_uverbs", "rdma_rxe", "rdma_ucm"),
)


def kernel() -> Path:
    """The folder with `vmlinuz` and `initramfs`."""
    packages.require(_NEEDED)
    return kernels.prepared(f"qemu-{_VERSION}", _prepare)


def boot_command(folder: Path, options: Options, first_stage: Path, run_folder: Path) -> list[str]:
    """The guest's console is our standard output; its ports 1 and 2 are descriptors 3 and 4."""
    whole = run_folder / "initramfs"
    own = initramfs.archive({"init": first_stage.read_bytes()})
    whole.write_bytes((folder / "initramfs").read_bytes() + own)
    return [
        *("qemu-system-x86_64", "-machine", "q35"),
        *(_VIRTUAL_TIME if options.virtual_time else ("-accel", "tcg,thread=multi", "-cpu", "max")),
        *("-smp", str(options.processors), "-m", str(options.memory_mib)),
        *("-nodefaults", "-no-user-config", "-no-reboot", "-display", "none"),
        *("-kernel", str(folder / "vmlinuz"), "-initrd", str(whole)),
        *("-append", "console=ttyS0 quiet panic=-1 nokaslr mitigations=off no_timer_check"),
        *("-serial", "stdio"),
        *("-device", "virtio-serial-pci"),
        *_port(1, 3),
        *_port(2, 4),
        *_share("root", Path("/"), "readonly=on"),
        *_share("run", run_folder),
        *_share("shared", Path.cwd().resolve()),
    ]


def _port(number: int, descriptor: int) -> list[str]:
    return [
        *("-chardev", f"file,id=port{number},path=/dev/fd/{descriptor}"),
        *("-device", f"virtserialport,chardev=port{number},nr={number}"),
    ]


def _share(tag: str, folder: Path, *settings: str) -> list[str]:
    path = str(folder).replace(",", ",,")
    words = [f"local,id={tag},path={path},security_model=none,multidevs=remap", *settings]
    return ["-fsdev", ",".join(words), "-device", f"virtio-9p-pci,fsdev={tag},mount_tag={tag}"]


def _prepare(work: Path, result: Path) -> None:
    root = work / "root"
    packages.unpack([packages.newest("linux-image-amd64"), "busybox-static"], root)
    shutil.copy(next(root.glob("boot/vmlinuz-*")), result / "vmlinuz")
    busybox = next(path for path in root.glob("**/bin/busybox") if path.is_file())
    files = {"bin/busybox": busybox.read_bytes()}
    available = {_module_name(path): path for path in root.glob("**/*.ko*") if path.is_file()}
    for order, name in enumerate(_in_loading_order(available)):
        files[f"modules/{order:02d}-{name}.ko"] = _contents(available[name])
    folders = ("bin", "modules", "proc", "sys", "dev", "host", "layer", "run")
    (result / "initramfs").write_bytes(initramfs.archive(files, folders))


def _module_name(path: Path) -> str:
    return path.name.partition(".")[0].replace("-", "_")


def _contents(module: Path) -> bytes:
    contents = module.read_bytes()
    return lzma.decompress(contents) if module.suffix == ".xz" else contents


def _in_loading_order(available: Mapping[str, Path]) -> list[str]:
    """_MODULES and their dependencies, each after its own dependencies."""
    order: list[str] = []

    def add(name: str) -> None:
        if name in order:
            return
        if name not in available:
            raise VmError(f"Debian's kernel has no module {name}")
        for dependency in _dependencies(_contents(available[name])):
            add(dependency)
        order.append(name)

    for module in _MODULES:
        add(module)
    return order


def _dependencies(module: bytes) -> Iterator[str]:
    """From the module's own description: NUL-separated lines such as depends=a,b."""
    for line in module.split(b"\0"):
        if line.startswith(b"depends="):
            names = line.removeprefix(b"depends=").decode()
            yield from (name.replace("-", "_") for name in names.split(",") if name)
