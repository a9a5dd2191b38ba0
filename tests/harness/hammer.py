"""A worker process that reads or writes without pause: `python -m harness.hammer read|write ...`.

Prints "ready" once it works and one JSON object of counts at the end. Checks every byte that
it gets. It uses few keys over and over, so that the daemon reuses slots all the time.
"""

import argparse
import json
import random
import select
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from harness.clock import now_s, seconds
from harness.pages import Pages

BATCH_PAGES = 16
_WRONG_BYTES = 3  # exit code


class Hammer:
    """Controls one such process from a test."""

    def __init__(self, verb: str, socket_path: Path, **options: int | float | str) -> None:
        words = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "harness.hammer", verb, f"--socket={socket_path}", *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parent.parent,
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait_ready(self) -> None:
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"

    def result(self) -> dict[str, Any]:
        """Waits until the process ends. Returns its counts."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        text = self._process.stdout.read()
        code = self._process.wait()
        self._close()
        assert code == 0, f"the hammer failed with exit code {code}: {text}"
        result: dict[str, Any] = json.loads(text)
        return result

    @property
    def ended(self) -> bool:
        """Whether the process has ended, normally or because of wrong bytes."""
        return self._process.poll() is not None

    def complaint(self) -> str:
        """For a hammer that has ended: the wrong bytes that it got, or nothing."""
        assert self._process.stdout is not None
        if self._process.poll() != _WRONG_BYTES:
            return ""
        text: str = json.loads(self._process.stdout.read())["wrong"]
        return text

    def stop(self) -> dict[str, Any]:
        """Ends the process after its current batch. Returns its counts."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        return self.result()

    def kill(self) -> None:
        """Kills the process. Harmless if it has already ended."""
        self._process.kill()
        self._process.wait()
        self._close()

    def _close(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()


def _hammer(options: argparse.Namespace) -> dict[str, Any]:
    chance = random.Random(options.seed)
    sizes = [int(size) for size in options.sizes.split(",")]
    counts: Counter[str] = Counter()
    calls = 0
    with Pages(
        Path(options.socket),
        page_bytes=max(sizes),
        room_pages=BATCH_PAGES,
        timeout_s=options.timeout_s,
    ) as pages:
        print("ready", flush=True)
        until = now_s() + options.seconds
        while (
            now_s() < until
            and counts.total() < options.pages
            and not select.select([sys.stdin], [], [], 0)[0]
        ):
            numbers = chance.sample(range(options.keys), BATCH_PAGES)
            keys = [f"hammered/{number}".encode() for number in numbers]
            # The size follows from the key, so that writers and readers agree on it.
            lengths = [sizes[number % len(sizes)] for number in numbers]
            if options.verb == "write":
                statuses = pages.set(keys, lengths)
            else:
                if chance.random() < 0.5:
                    pages.client.contains(keys)
                statuses = pages.get(keys, lengths)
            counts.update(status.name for status in statuses)
            calls += 1
        return {"calls": calls, "pages": counts, "longest_call_s": pages.calls.longest_s}


def _main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("verb", choices=["read", "write"])
    parser.add_argument("--socket", required=True)
    parser.add_argument("--keys", type=int, required=True)
    parser.add_argument("--sizes", required=True, help="page sizes in bytes, with commas")
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--pages", type=float, default=1e18, help="stop after so many")
    parser.add_argument("--timeout-s", type=float, default=seconds(2.0))
    parser.add_argument("--seed", type=int, default=1)
    try:
        print(json.dumps(_hammer(parser.parse_args())))
    except AssertionError as wrong:
        print(json.dumps({"wrong": str(wrong)}))
        raise SystemExit(_WRONG_BYTES) from wrong


if __name__ == "__main__":
    _main()
