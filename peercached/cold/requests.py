"""Requests to the object store: on threads of their own, within a budget, with backoff.

The library is obstore, Python's binding of Arrow's object_store. Its asynchronous calls are not
used: threads of theirs that wake up while the interpreter ends abort the process. Its blocking
calls release the interpreter's lock and run here on bounded pools of threads.

Nothing of a message of the library is shown but a status code and an S3 error code: messages have
URLs, and URLs may have signatures.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, TypeVar
from urllib.parse import unquote, urlsplit

T = TypeVar("T")

READERS = 8  # threads that read ranges of objects
CONTROL_THREADS = 8  # that list, and read manifests and records of removals
WRITERS = 4  # that write objects and their manifests
CONNECT_S = 2
READ_S = 5  # of one request; a write may take WRITE_S. Both are shorter than a stop may take.
WRITE_S = 10
# A request waits for the budget at most so long.
BUDGET_WAIT_S = 2.0
BACKOFF_MIN_S = 1.0
BACKOFF_MAX_S = 60.0
# A failure counts for so long, unless a request of its side works before.
TOLD_S = 600.0
LIST_PAGE = 1000  # names in one answer of a store
# The sweeper's share of the budget. It also leaves the others this share of what is saved up.
SPARE_SHARE = 0.25
SPARE_LEAVES = 0.5

Kind = Literal[
    "missing", "cut", "denied", "throttled", "unreachable", "budget", "backoff", "name", "other"
]

_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>(\w{1,40})</Code>")
_BAD_NAME = re.compile(r'Path "([\x21-\x7e]{1,400})" contained non-unicode')

_REMEDIES: dict[str, str] = {
    "missing": "Make the bucket or folder that cold_store names, or correct its name.",
    "denied": "Give the daemon credentials that may list, read and write below cold_store, or its "
    "user the rights to write into the folder (docs/cold-tier.md).",
    "throttled": "Lower cold_requests_per_s, or ask the store's operator for more.",
    "unreachable": "Look at the network, the endpoint and the time limits of the store.",
    "name": "Rename or delete that file: its name is no UTF-8, so the folder cannot be listed. (In "
    "the sentence, % and two digits are one byte of the name.)",
    "other": "Look at the store, at cold_store, and at the environment of the daemon. A server "
    "without TLS needs AWS_ALLOW_HTTP=true there.",
}


class StoreError(Exception):
    """A request that failed. The text is for people."""

    def __init__(self, kind: Kind, text: str) -> None:
        super().__init__(text)
        self.kind = kind


@dataclass(slots=True)
class _Side:
    """All requests that read, or all that write: a store may fail at one and not at the other."""

    again_at: float = float("-inf")
    pause_s: float = 0.0
    failed_at: float = float("-inf")
    failure: str = ""  # of the last request, if it failed
    failure_kind: str = ""

    @property
    def rests(self) -> bool:
        return time.monotonic() < self.again_at

    def worked(self) -> None:
        self.failure = self.failure_kind = ""
        self.pause_s = 0.0

    def failed(self, text: str, kind: str) -> None:
        self.failure, self.failure_kind, self.failed_at = text, kind, time.monotonic()
        self.pause_s = min(max(2 * self.pause_s, BACKOFF_MIN_S), BACKOFF_MAX_S)
        self.again_at = self.failed_at + self.pause_s

    def refused(self) -> StoreError:
        return StoreError("backoff", self.failure or "the store failed a moment ago")


class Requests:
    """On the event loop's thread. `url`: the key cold_store. RuntimeError with the remedy if the
    library or the URL cannot be used."""

    def __init__(self, url: str, per_s: float) -> None:
        self.url = url
        self._per_s = per_s
        self._left = per_s
        self._counted_at = time.monotonic()
        self.began_at = time.monotonic()
        self._spare_at = 0.0  # no spare request before that time
        self._reads, self._writes = _Side(), _Side()
        self.requests: Counter[str] = Counter()  # by kind: put, get, list, delete
        self.errors: Counter[str] = Counter()  # by Kind
        self.bytes_read = self.bytes_written = 0
        self._ended = False
        self._library, self._stores = _open(url)
        self._pools = {
            "read": ThreadPoolExecutor(READERS, "cold-read"),
            "control": ThreadPoolExecutor(CONTROL_THREADS, "cold-list"),
            "write": ThreadPoolExecutor(WRITERS, "cold-write"),
        }

    def stop(self) -> None:
        """Requests under way end by themselves, or with the process, which waits for them. So a
        listing makes no more requests."""
        self._ended = True
        for pool in self._pools.values():
            pool.shutdown(wait=False, cancel_futures=True)

    @property
    def lists_in_order(self) -> bool:
        """Whether a listing goes through the names in their order. A folder's does not."""
        return not self.url.startswith("file:")

    @property
    def failures(self) -> dict[str, tuple[str, str]]:
        """Of "reads" and "writes", if the last one failed: (why, the remedy)."""
        since = time.monotonic() - TOLD_S
        return {
            name: (side.failure, _REMEDIES.get(side.failure_kind, ""))
            for name, side in (("reads", self._reads), ("writes", self._writes))
            if side.failure and side.failed_at > since
        }

    @property
    def rests(self) -> bool:
        """Whether reads and listings are refused for now, because one failed."""
        return self._reads.rests

    @property
    def writes_rest(self) -> bool:
        return self._writes.rests

    def _side_of(self, kind: str) -> _Side:
        return self._reads if kind in ("get", "list") else self._writes

    # --- requests. They raise StoreError.

    async def put(
        self, path: str, payload: bytes, *, urgent: bool = False, spare: bool = False
    ) -> bool:
        """Writes a new object. False: there is one of that name already. `urgent`: goes ahead of
        the budget and in spite of a backoff. `spare`: waits until the others leave room."""
        store = self._stores["write"]

        def call() -> bool:
            try:
                store.put(path, payload, mode="create", use_multipart=False)
            except self._library.exceptions.AlreadyExistsError:
                return False
            return True

        pool = "control" if urgent else "write"
        is_new = await self._run(pool, "put", call, f"writing {_shown(path)}", urgent, spare)
        self.bytes_written += len(payload) if is_new else 0
        return is_new

    async def get(
        self, path: str, bytes_max: int, *, urgent: bool = False, spare: bool = False
    ) -> bytes:
        """Reads a whole small object."""
        store = self._stores["read"]

        def call() -> bytes:
            found = store.get(path)
            size = found.meta["size"]
            if size > bytes_max:  # a foreign object; its content is not what its name says
                return b""
            return bytes(found.bytes())

        got = await self._run("control", "get", call, f"reading {_shown(path)}", urgent, spare)
        self.bytes_read += len(got)
        return got

    async def get_range(self, path: str, start: int, end: int, *, spare: bool = False) -> Any:
        """A buffer, of the library. May return fewer bytes if the object is shorter."""
        store = self._stores["read"]

        def call() -> Any:
            return store.get_range(path, start=start, end=end)

        got = await self._run("read", "get", call, f"reading {_shown(path)}", False, spare)
        self.bytes_read += memoryview(got).nbytes
        return got

    async def names(
        self,
        folder: str,
        after: str,
        names_max: int,
        *,
        urgent: bool = False,
        spare: bool = False,
    ) -> list[str]:
        """All names in that folder that sort behind `after`, in order. Complete as of the call's
        begin."""
        return [path for path, _ in await self.dated(folder, after, names_max, urgent, spare)]

    async def dated(
        self, folder: str, after: str, names_max: int, urgent: bool = False, spare: bool = False
    ) -> list[tuple[str, datetime]]:
        """The same, with the store's times."""
        store = self._stores["read"]

        def call() -> list[tuple[str, datetime]]:
            found: list[tuple[str, datetime]] = []
            for part in store.list(f"{folder}/", offset=after or None, chunk_size=LIST_PAGE):
                found += ((meta["path"], meta["last_modified"]) for meta in part)
                if len(found) > names_max:
                    raise _TooMany
                if self._ended:
                    raise InterruptedError("this node stops")
            found.sort()
            return found

        try:
            found = await self._run("control", "list", call, f"listing {folder}", urgent, spare)
        except _TooMany:
            raise StoreError("other", f"{folder} has more than {names_max} names") from None
        self.requests["list"] += len(found) // LIST_PAGE
        return found

    async def delete(self, path: str) -> None:
        """A spare request. No error if there is no such object."""
        store = self._stores["write"]

        def call() -> None:
            with contextlib.suppress(FileNotFoundError):
                store.delete(path)

        await self._run("control", "delete", call, f"deleting {_shown(path)}", False, spare=True)

    # --- the ways of all requests

    async def _run(
        self,
        pool: str,
        kind: str,
        call: Callable[[], T],
        what: str,
        urgent: bool,
        spare: bool = False,
    ) -> T:
        side = self._side_of(kind)
        await (self._take_spare_turn(side) if spare else self._take_turn(side, urgent))
        self.requests[kind] += 1
        try:
            result = await asyncio.get_running_loop().run_in_executor(self._pools[pool], call)
        except _TooMany:
            raise
        except Exception as error:
            raise self._failed(error, what, kind) from None
        side.worked()
        return result

    async def _take_spare_turn(self, side: _Side) -> None:
        """Nobody waits for these requests, so they wait as long as it takes."""
        begins_at = max(self._spare_at, time.monotonic())
        self._spare_at = begins_at + 1 / (SPARE_SHARE * self._per_s)
        await asyncio.sleep(begins_at - time.monotonic())
        leaves = min(SPARE_LEAVES * self._per_s, self._per_s - 1)
        while True:
            self._fill()
            if side.rests:
                raise side.refused()
            if self._left >= leaves + 1:
                self._left -= 1
                return
            await asyncio.sleep((leaves + 1 - self._left) / self._per_s)

    def _fill(self) -> None:
        now = time.monotonic()
        self._left = min(self._left + (now - self._counted_at) * self._per_s, self._per_s)
        self._counted_at = now

    async def _take_turn(self, side: _Side, urgent: bool) -> None:
        give_up_at = time.monotonic() + BUDGET_WAIT_S
        while True:
            self._fill()
            if side.rests and not urgent:
                self.errors["backoff"] += 1
                raise side.refused()
            if self._left >= 1 or urgent:
                self._left -= 1
                return
            if time.monotonic() >= give_up_at:
                self.errors["budget"] += 1
                raise StoreError("budget", "cold_requests_per_s is used up")
            await asyncio.sleep(min((1 - self._left) / self._per_s, BUDGET_WAIT_S))

    def _failed(self, error: Exception, what: str, request: str) -> StoreError:
        kind = _kind_of(error)
        text = f"{what} failed: {_cause_of(error, kind)}"
        self.errors[kind] += 1
        # An object may vanish or be cut at any time, a bucket does not. Reads need no right to
        # delete.
        is_of_all = kind not in ("missing", "cut") and (kind, request) != ("denied", "delete")
        if is_of_all or "NoSuchBucket" in str(error):
            self._side_of(request).failed(text, kind)
        return StoreError(kind, text)


class _TooMany(Exception):
    pass


def _open(url: str) -> tuple[Any, dict[str, Any]]:
    try:
        import obstore
        import obstore.exceptions
        import obstore.store
    except ImportError as error:
        raise RuntimeError(
            f"cold_store needs the Python package obstore ({error}): install peercached[cold], or "
            'set cold_store to ""'
        ) from error
    try:
        if url.startswith("file:"):
            # Not its parents: a mistyped path is more likely than such a wish.
            Path(unquote(urlsplit(url).path)).mkdir(exist_ok=True)
            store = obstore.store.from_url(url)
            return obstore, {"read": store, "write": store}
        no_retries = {"max_retries": 0}  # we back off by ourselves
        plain = os.environ.get("AWS_ALLOW_HTTP", "").lower() in ("1", "true")

        def made(timeout_s: int) -> Any:
            options = {
                "timeout": f"{timeout_s}s",
                "connect_timeout": f"{CONNECT_S}s",
                "allow_http": plain,
            }
            # Every page has a checksum of its own, and an index its name.
            unsigned: Any = {"unsigned_payload": True} if url.startswith("s3:") else {}
            return obstore.store.from_url(
                url,
                client_options=options,  # type: ignore[call-overload]
                retry_config=no_retries,
                **unsigned,
            )

        return obstore, {"read": made(READ_S), "write": made(WRITE_S)}
    except OSError as error:
        why = error.strerror or _cause_of(error, "other")
        raise RuntimeError(
            f"cold_store: {url} cannot be used: {why}. Make that folder for the user of the "
            "daemon, or correct cold_store"
        ) from None
    except Exception as error:
        raise RuntimeError(
            f"cold_store: {url} cannot be used: {_cause_of(error, 'other')}. Look at the URL and "
            "at the settings of the store in the daemon's environment"
        ) from None


def _kind_of(error: Exception) -> Kind:
    text = str(error)
    if isinstance(error, FileNotFoundError):
        return "missing"
    if _status_of(text) == "416" or "InvalidRange" in text:
        return "cut"
    if _BAD_NAME.search(text):
        return "name"
    name = type(error).__name__
    status = _status_of(text)
    if name in ("PermissionDeniedError", "UnauthenticatedError") or status in ("401", "403"):
        return "denied"
    if "(os error 13)" in text or "(os error 30)" in text:  # of a folder: EACCES, EROFS
        return "denied"
    if status in ("429", "503") or "SlowDown" in text:
        return "throttled"
    if not status and ("error sending request" in text or "timed out" in text):
        return "unreachable"
    return "other"


def _status_of(text: str) -> str:
    found = _STATUS.search(text)
    return found[1] if found else ""


def _cause_of(error: Exception, kind: str) -> str:
    """No text of the library: it may have a URL with a signature."""
    text = str(error)
    if kind == "name" and (bad := _BAD_NAME.search(text)):  # only folders have such names
        return f"the name of the file {bad[1]} is no UTF-8"
    code = _CODE.search(text)
    parts = [part for part in (_status_of(text), code[1] if code else "") if part]
    if kind == "unreachable" and not parts:
        return "no connection, or no answer in time"
    return " ".join(parts) or type(error).__name__


def _shown(path: str) -> str:
    return path if len(path) <= 120 and path.isprintable() else repr(path[:120])
