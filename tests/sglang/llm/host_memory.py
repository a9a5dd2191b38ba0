"""Measures the host memory that a process has for KV."""

from pathlib import Path

# The first plays the device, the second tells a daemon which processes live.
_NO_HOST_KV = ("/memfd:gpu", "/memfd:peercache-gate")


def kv_bytes(pid: int, *, name: str = "") -> int:
    """The size of all memfds that the process has mapped, or of those with this name. With CUDA
    SGLang pins its own, whether they are used or not. Each file counts once."""
    found: dict[str, int] = {}
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        span, _, offset, _, inode, *path = line.split(maxsplit=5)
        file = "".join(path).removesuffix(" (deleted)")
        if not file.startswith(f"/memfd:{name}") or file in _NO_HOST_KV:
            continue
        begin, end = (int(each, 16) for each in span.split("-"))
        found[inode] = max(found.get(inode, 0), int(offset, 16) + end - begin)
    return sum(found.values())
