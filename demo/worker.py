"""One inference worker as a process of its own: jobs in on stdin, outcomes out on stdout.

A job is a chain of blocks. As an engine does, the worker asks for the longest prefix that
exists, gets it, checks every byte, and sets the rest, which it would have computed. It is
the same job for prefill and for decode: a decode worker finds what prefill has just set.

One JSON object a line. In: `{"chain": [..], "answer": [..]}`. Out: the fields of Outcome.
End of input ends the process.
"""

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from itertools import takewhile
from typing import Any

from harness.content import Content

from peercache_client import Client

NAMESPACE = "peercached demo"

# How many wrong pages one job describes. More would add nothing new.
_WRONG_DESCRIBED_MAX = 5


@dataclass
class Outcome:
    """The result of one job. Times are in seconds, one per call of the client."""

    asked_pages: int = 0
    promised_pages: int = 0
    """Leading pages that `exists` reported."""
    hit_pages: int = 0
    """Leading pages that `get` delivered, right in every byte."""
    missed: dict[str, int] = field(default_factory=dict)
    """Promised pages that `get` did not deliver, by status."""
    set_pages: int = 0
    unset: dict[str, int] = field(default_factory=dict)
    got_bytes: int = 0
    set_bytes: int = 0
    exists_s: list[float] = field(default_factory=list)
    get_s: list[float] = field(default_factory=list)
    set_s: list[float] = field(default_factory=list)
    wrong_pages: int = 0
    wrong: list[str] = field(default_factory=list)
    error: str = ""
    """The client raised, which it never may."""


class Worker:
    """Does jobs with one client and one region. Not thread safe."""

    def __init__(
        self, client: Client, *, page_bytes: int, batch_pages: int, salt: str, set_all: bool = False
    ) -> None:
        self._client = client
        self._set_all = set_all
        self._page_bytes = page_bytes
        self._batch_pages = batch_pages
        self._salt = salt
        self._content = Content(page_bytes)
        self._region = client.alloc(page_bytes * batch_pages)
        self._pages = [
            self._region.view[place * page_bytes : (place + 1) * page_bytes]
            for place in range(batch_pages)
        ]

    def key(self, block: int) -> bytes:
        """The page's key. Its salt separates replays on one cluster."""
        return f"{self._salt}/{block:016x}".encode()

    def do(self, chain: Sequence[int], answer: Sequence[int] = ()) -> Outcome:
        outcome = Outcome(asked_pages=len(chain))
        try:
            keys = [self.key(block) for block in chain]
            outcome.promised_pages = self._exists(keys, outcome)
            outcome.hit_pages = self._get(keys[: outcome.promised_pages], outcome)
            known = 0 if self._set_all else outcome.hit_pages
            rest = [*keys[known:], *(self.key(block) for block in answer)]
            parent = keys[known - 1] if known else None
            self._set(rest, parent, outcome)
        except Exception as error:
            outcome.error = f"{type(error).__name__}: {error}"
        return outcome

    def _exists(self, keys: list[bytes], outcome: Outcome) -> int:
        began = time.perf_counter()
        prefix = self._client.batch_exists(keys)
        outcome.exists_s.append(time.perf_counter() - began)
        return prefix

    def _get(self, keys: list[bytes], outcome: Outcome) -> int:
        """Gets the pages, and returns how many leading pages arrived and were right."""
        hits = 0
        for batch in self._batches(keys):
            began = time.perf_counter()
            statuses = self._client.batch_get(
                batch, self._region, self._offsets(len(batch)), self._page_bytes
            )
            outcome.get_s.append(time.perf_counter() - began)
            for key, page, status in zip(batch, self._pages, statuses, strict=False):
                if status:  # also checks hits after a miss
                    outcome.got_bytes += self._page_bytes
                    self._check(key, page, outcome)
            _count(outcome.missed, statuses)
            came = sum(1 for _ in takewhile(bool, statuses))
            hits += came
            if came < len(batch):
                break
        return hits

    def _check(self, key: bytes, page: memoryview, outcome: Outcome) -> None:
        mismatch = self._content.mismatch(key, page)
        if mismatch:
            outcome.wrong_pages += 1
            if len(outcome.wrong) < _WRONG_DESCRIBED_MAX:
                outcome.wrong.append(mismatch)

    def _set(self, keys: list[bytes], parent: bytes | None, outcome: Outcome) -> None:
        for batch in self._batches(keys):
            for key, page in zip(batch, self._pages, strict=False):
                self._content.write(key, page)
            began = time.perf_counter()
            statuses = self._client.batch_set(
                batch, self._region, self._offsets(len(batch)), self._page_bytes, parent=parent
            )
            outcome.set_s.append(time.perf_counter() - began)
            done = sum(map(bool, statuses))
            outcome.set_pages += done
            outcome.set_bytes += done * self._page_bytes
            _count(outcome.unset, statuses)
            parent = batch[-1]

    def _batches(self, keys: list[bytes]) -> Iterable[list[bytes]]:
        for begin in range(0, len(keys), self._batch_pages):
            yield keys[begin : begin + self._batch_pages]

    def _offsets(self, count: int) -> list[int]:
        return [place * self._page_bytes for place in range(count)]


def _count(counts: dict[str, int], statuses: Iterable[Any]) -> None:
    for name, count in Counter(status.name for status in statuses if not status).items():
        counts[name] = counts.get(name, 0) + count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--socket", required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--page-bytes", type=int, required=True)
    parser.add_argument("--batch-pages", type=int, required=True)
    parser.add_argument("--timeout-s", type=float, required=True)
    parser.add_argument("--salt", required=True)
    parser.add_argument("--set-all", action="store_true")
    options = parser.parse_args()
    with Client(
        options.socket, namespace=NAMESPACE, name=options.name, timeout_s=options.timeout_s
    ) as client:
        worker = Worker(
            client,
            page_bytes=options.page_bytes,
            batch_pages=options.batch_pages,
            salt=options.salt,
            set_all=options.set_all,
        )
        print(json.dumps({"ready": options.name}), flush=True)
        for line in sys.stdin:
            job = json.loads(line)
            print(json.dumps(asdict(worker.do(job["chain"], job["answer"]))), flush=True)


if __name__ == "__main__":
    main()
