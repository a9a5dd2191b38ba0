"""The document of `peercachectl process` and `GET /api/v1/process`: the daemon as a process."""

from __future__ import annotations

from pydantic import Field

from peercached.admin.status import Document, Part


class Threads(Part):
    """All threads of one name."""

    name: str = ""
    threads: int = 0
    cpu_s: float = 0.0  # processor time since they began


class Environment(Part):
    """The machine and packages that the daemon runs on."""

    python: str = ""
    kernel: str = ""
    machine: str = ""
    processors: int = 0  # that this process may use
    memory_bytes: int = 0
    packages: dict[str, str] = Field(default_factory=dict)  # name -> version
    build: dict[str, str] = Field(default_factory=dict)  # observe/build_info.py


class Process(Document):
    """The whole document."""

    node_id: str = ""
    pid: int = 0
    resident_bytes: int = 0  # includes touched pages of the pool
    open_files: int = 0
    open_files_max: int = 0
    threads: list[Threads] = Field(default_factory=list)  # the busiest first
    environment: Environment = Field(default_factory=Environment)
