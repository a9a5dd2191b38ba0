"""The files of a node that outlive its processes: disk tier, pool file and state_dir."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

# Attempts to copy a folder that another process keeps writing to.
TRIES_MAX = 1000

# path -> (size, {offset: bytes written there})
Files = dict[str, tuple[int, dict[int, bytes]]]


class Home:
    """The folders of one node. Threads of a killed process end late in the simulator and may go on
    writing, so the next process gets a copy."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._numbers = count()
        self._backups: list[Path] = []
        self.now = self._new()
        self.state.mkdir(parents=True)

    @property
    def state(self) -> Path:
        return self.now / "state"

    @property
    def disk(self) -> Path:
        return self.now / "disk"

    @property
    def pool_file(self) -> Path:
        return self.now / "pool"

    def _new(self) -> Path:
        return self._path / str(next(self._numbers))

    def leave_to_the_killed(self) -> Path:
        """Copies the current files for the next process. Returns the folder that the killed process
        still uses."""
        left, self.now = self.now, self._new()
        copy_at_one_moment(left, self.now)
        return left

    def back_up(self) -> None:
        if self.disk.exists():
            copy = self._new()
            copy_at_one_moment(self.now, copy)
            self._backups.append(copy)

    @property
    def has_backup(self) -> bool:
        return bool(self._backups)

    def restore_disk(self, choose: Callable[[list[Path]], Path]) -> bool:
        """Restores only the disk tier, while no process uses it. Returns False without a backup."""
        if self.has_backup:
            shutil.rmtree(self.disk, ignore_errors=True)
            copy_at_one_moment(choose(self._backups) / "disk", self.disk)
        return self.has_backup

    def restore(self, choose: Callable[[list[Path]], Path]) -> None:
        """Restores all files from one backup, while no process uses them."""
        shutil.rmtree(self.now)
        copy_at_one_moment(choose(self._backups), self.now)


def copy_at_one_moment(source: Path, copy: Path) -> None:
    """Copies a consistent snapshot of a folder in use: it reads until two reads are equal."""
    found = _read(source)
    for _ in range(TRIES_MAX):
        before, found = found, _read(source)
        if found is not None and found == before:
            break
    else:
        raise AssertionError(f"{source} is never at rest")
    for name, (size, written) in found.items():
        target = copy / name
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("wb") as file:
            for at, data in written.items():
                file.seek(at)
                file.write(data)
            file.truncate(size)


def _read(folder: Path) -> Files | None:
    """The files of the folder, or None if one of them vanished meanwhile."""
    try:
        return {
            str(path.relative_to(folder)): _read_file(path)
            for path in sorted(folder.rglob("*"))
            if path.is_file()
        }
    except FileNotFoundError:
        return None


def _read_file(path: Path) -> tuple[int, dict[int, bytes]]:
    fd = os.open(path, os.O_RDONLY)
    try:
        size = os.fstat(fd).st_size
        return size, {at: os.pread(fd, end - at, at) for at, end in _written(fd, size)}
    finally:
        os.close(fd)


def _written(fd: int, size: int) -> Iterator[tuple[int, int]]:
    """The (begin, end) ranges that were written. Files are preallocated and stay mostly empty."""
    at = 0
    while at < size:
        try:
            at = os.lseek(fd, at, os.SEEK_DATA)
        except OSError:  # no more data
            return
        end = os.lseek(fd, at, os.SEEK_HOLE)
        yield at, end
        at = end
