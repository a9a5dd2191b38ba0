"""LMCache's multi-process server as a process, with our adapter in its arguments.

It imports no lmcache: the server runs in a Python that has it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from harness.clock import seconds
from harness.loop_node import free_port


class LmcacheServer:
    """Started as docs/lmcache.md says, with L1 in shared memory."""

    def __init__(
        self, python: Path, socket_path: Path, log: Path, stack: ExitStack, *, chunk_tokens: int
    ) -> None:
        """`python`: has lmcache. The process ends with `stack`."""
        self.port, self._http_port = free_port(), free_port()
        self.log = log
        command = [sys.executable, "-m", "peercached.cli.ctl", "--socket", str(socket_path)]
        printed = subprocess.run(
            [*command, "lmcache-config", "--json"], capture_output=True, check=True, text=True
        ).stdout
        arguments = {
            "--host": "127.0.0.1",
            "--port": str(self.port),
            "--http-port": str(self._http_port),
            "--chunk-size": str(chunk_tokens),
            "--l1-size-gb": "0.03125",
            "--eviction-policy": "LRU",
            "--supported-transfer-mode": "engine_driven",
            "--shm-name": f"test_{uuid.uuid4().hex[:12]}",
            "--l2-adapter": json.dumps(json.loads(printed)),
        }
        words = [word for argument in arguments.items() for word in argument]
        command = [str(python), "-m", "lmcache.cli.main", "server", "--no-l1-use-lazy"]
        self.process = subprocess.Popen(
            [*command, *words, "--disable-metrics"],
            stdout=stack.enter_context(log.open("wb")),
            stderr=subprocess.STDOUT,
            env={**os.environ, "LMCACHE_TRACK_USAGE": "false"},
        )
        stack.callback(self._end)

    def _end(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(seconds(20))
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def http(self, path: str, method: str = "GET") -> Any:
        """The answer of LMCache's HTTP frontend. OSError while it does not listen."""
        request = Request(f"http://127.0.0.1:{self._http_port}{path}", method=method)
        with urlopen(request, timeout=seconds(20)) as answer:
            return json.load(answer)

    def adapter(self) -> dict[str, Any]:
        """The status of our adapter, over HTTP."""
        [status] = self.http("/status")["storage_manager"]["l2_adapters"]
        found: dict[str, Any] = status
        return found
