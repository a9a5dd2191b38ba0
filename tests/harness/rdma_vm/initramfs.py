"""An archive that the kernel unpacks into its first root: cpio, "newc" format.

Each entry is a header of thirteen hexadecimal fields, the name and the contents, each padded to
four bytes (Linux, Documentation/driver-api/early-userspace/buffer-format.rst).
"""

from collections.abc import Mapping, Sequence

_MAGIC = "070701"
_FOLDER = 0o040755
_PROGRAM = 0o100755


def archive(files: Mapping[str, bytes], folders: Sequence[str] = ()) -> bytes:
    """All files are executable. A file's folder must be in `folders` or in an earlier archive."""
    entries = [_entry(name, _FOLDER, b"") for name in folders]
    entries += [_entry(name, _PROGRAM, contents) for name, contents in files.items()]
    return b"".join([*entries, _entry("TRAILER!!!", 0, b"")])


def _entry(name: str, mode: int, contents: bytes) -> bytes:
    inode, owner, group, links, changed, device, name_bytes, check = (
        0,
        0,
        0,
        1,
        0,
        0,
        len(name) + 1,
        0,
    )
    fields = [inode, mode, owner, group, links, changed, len(contents)]
    fields += [device, device, device, device, name_bytes, check]
    header = _MAGIC + "".join(f"{field:08X}" for field in fields)
    return _padded(header.encode() + name.encode() + b"\0") + _padded(contents)


def _padded(piece: bytes) -> bytes:
    return piece + bytes(-len(piece) % 4)
