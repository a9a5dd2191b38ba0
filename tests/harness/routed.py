"""A router (deploy/examples/router) before simulated engines, each beside a daemon."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

from harness.clock import seconds
from harness.cluster import Daemon
from harness.waiting import eventually

TESTS = Path(__file__).parents[1]
EXAMPLE = TESTS.parent / "deploy/examples/router"
PAGES = {"model_name": "acme/routed", "page_size": 16, "kv_cache_dtype": "bfloat16"}
PAGE_BYTES = 4096


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Routed:
    """The processes end with the context."""

    def __init__(
        self,
        folder: Path,
        daemons: Sequence[Daemon],
        *,
        pages: Mapping[str, Any] = PAGES,
        engine_options: Sequence[str] = (),
        **router: Any,
    ) -> None:
        """`router`: keys of its configuration."""
        self._stack = ExitStack()
        self._daemons = daemons
        self._folder = folder
        self._pages = dict(pages)
        self._engine_options = engine_options
        patience_ms = round(1000 * seconds(5))
        self._router = {"port": free_port(), "prefix_timeout_ms": patience_ms, **router}
        self.url = f"http://127.0.0.1:{self._router['port']}"
        self.engines: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Routed:
        with ExitStack() as stack:
            engines = {}
            for daemon in self._daemons:
                port = free_port()
                engines[daemon.node_id] = f"http://127.0.0.1:{port}"
                command = ["harness.simulated_engine", f"--socket={daemon.socket_path}"]
                command += [f"--pages={json.dumps(self._pages)}", f"--port={port}"]
                command += [f"--page-bytes={PAGE_BYTES}", *self._engine_options]
                self.engines[daemon.node_id] = self._run(stack, daemon.node_id, command)
            config = self._folder / "router.toml"
            config.write_text(self._config(engines))
            self._run(stack, "router", ["peercached_router", str(config)])
            for url in (*engines.values(), self.url):
                eventually(lambda url=url: _answers(f"{url}/v1/models"), 30, url)  # type: ignore[misc]
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def _run(self, stack: ExitStack, name: str, command: Sequence[str]) -> subprocess.Popen[bytes]:
        log = stack.enter_context((self._folder / f"{name}.log").open("wb"))
        process = stack.enter_context(
            subprocess.Popen(
                [sys.executable, "-m", *command],
                stdout=log,
                stderr=log,
                env={**os.environ, "PYTHONPATH": f"{TESTS}:{EXAMPLE}"},
            )
        )
        stack.callback(process.kill)
        return process

    def _config(self, engines: Mapping[str, str]) -> str:
        lines = [f"{name} = {json.dumps(value)}" for name, value in self._router.items()]
        lines += ["[pages]", f"page_bytes = [{PAGE_BYTES}]"]
        lines += [f"{name} = {json.dumps(value)}" for name, value in self._pages.items()]
        for daemon in self._daemons:
            lines += [
                f"[nodes.{daemon.node_id}]",
                f'engine = "{engines[daemon.node_id]}"',
                f'daemon = "http://{daemon.metrics_address()}"',
            ]
        return "\n".join(lines) + "\n"

    def complete(self, tokens: Sequence[int], **more: Any) -> tuple[str, dict[str, Any]]:
        """The node that answered, and what it said."""
        body = json.dumps({"prompt": list(tokens), **more}).encode()
        request = urllib.request.Request(
            f"{self.url}/v1/completions", body, {"content-type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=seconds(30)) as answer:
            return answer.headers["x-peercached-node"], json.load(answer)

    def status(self) -> Any:
        with urllib.request.urlopen(f"{self.url}/status", timeout=seconds(10)) as answer:
            return json.load(answer)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=seconds(5)):
            return True
    except (OSError, urllib.error.URLError):
        return False
