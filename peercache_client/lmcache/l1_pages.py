"""The objects in LMCache's L1 memory as pages of the daemon: in place, or by a copy.

LMCache's L1 is one piece of memory. If it is POSIX shared memory, it is a region of the daemon, and
pages go from a peer's pool straight into it. If it is private memory, no other process can map it,
so each page goes through a client's staging memory. There are two clients then: while one waits for
the daemon, the other copies.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from peercache_client import Client, Region, Status, _ipc
from peercache_client.engine_settings import EngineSettings
from peercache_client.forecast import Forecast, Judged
from peercache_client.lmcache.identity import make_model_namespace
from peercache_client.page_names import PageHash
from peercache_client.rate_limited_log import RateLimitedLog
from peercache_client.staging import possible_parent
from peercache_client.wire import Key
from peercache_client.worth import left_s

_LOOKUP_TIMEOUT_S: Final = 1.0
# Of one request to the daemon, which has the settings' timeout.
_PAGES_MAX: Final = 128
_BYTES_MAX: Final = 256 << 20
# Where L1 is private memory. It limits the size of a page.
_STAGING_BYTES: Final = 256 << 20
# Of one request there: small, so that copies and requests overlap also within one task.
_COPIED_BYTES_MAX: Final = 8 << 20
# Each model has a connection of its own, because a connection has one namespace.
_MODELS_MAX: Final = 16
# After these, each further request of the same task would wait for nothing.
_HOPELESS: Final = frozenset({Status.deadline, Status.no_daemon, Status.region_lost})

REMEDY: Final = "start LMCache with --no-l1-use-lazy and a --shm-name"


class Page(NamedTuple):
    key: bytes
    address: int
    length: int  # bytes
    event_hash: PageHash = None


class Memory(NamedTuple):
    """LMCache's L1."""

    address: int
    size_bytes: int


class _Attached(NamedTuple):
    client: Client
    region: Region | None  # None: pages are copied
    copier: Client | None  # the second client, if pages are copied

    @property
    def clients(self) -> list[Client]:
        return [self.client] if self.copier is None else [self.client, self.copier]


class L1Pages:
    """Thread safe. It raises nothing: a page that cannot be moved has a falsy status.

    It attaches to the daemon at the first call for a model, on that call's thread. The memory must
    stay mapped until `close`.
    """

    def __init__(self, settings: EngineSettings, name: str, memory: Memory | None) -> None:
        """`memory`: None if L1 is not one piece of this process's memory."""
        self._settings = settings
        self._name = name
        self._memory = memory
        self._log_rarely = RateLimitedLog()
        self._attaching = threading.Lock()
        self._models: dict[str, _Attached] = {}
        self._ended = False
        self._tasks = itertools.count()

    def forecast(self, model: str, keys: Sequence[bytes], judged: Judged) -> Forecast:
        """Whether some node has each of these pages, and the time to load them: one request for
        all. Answers within 1 s. `judged`: as of Client.forecast."""
        attached = self._attach(model)
        if attached is None:
            return Forecast([False] * len(keys), [], [])
        return attached.client.forecast(
            keys, timeout_s=_LOOKUP_TIMEOUT_S, every=True, judged=judged
        )

    def touch(self, model: str, keys: Sequence[bytes]) -> None:
        """The pages of this node's pool among these were used."""
        if (attached := self._attach(model)) is not None:
            attached.client.touch(keys, timeout_s=_LOOKUP_TIMEOUT_S)

    def store(self, model: str, pages: Sequence[Page]) -> list[Status]:
        """Sets each page from its place in L1."""
        return self._move(True, model, pages)

    def load(
        self, model: str, pages: Sequence[Page], give_up_s: float | None = None
    ) -> list[Status]:
        """Gets each page into its place in L1. When this returns, nothing writes there any
        more. `give_up_s`: as of Client.batch_get."""
        return self._move(False, model, pages, give_up_s)

    @property
    def in_place(self) -> bool | None:
        """Whether pages are moved without a copy. None: not known before the first task."""
        attached = next(iter(self._models.values()), None)
        return None if attached is None else attached.region is not None

    @property
    def last_error(self) -> str:
        """Why the daemon cannot be reached; empty while it can, and before the first task."""
        models = list(self._models.values())
        return next((each.client.last_error for each in models if each.client.last_error), "")

    def close(self) -> None:
        """Call it when no other call is running. Later calls move nothing."""
        with self._attaching:
            models, self._models = self._models, {}
            self._ended = True
        for attached in models.values():
            if attached.region is not None:
                attached.region.close()
            for client in attached.clients:
                client.close()

    def _move(
        self, storing: bool, model: str, pages: Sequence[Page], give_up_s: float | None = None
    ) -> list[Status]:
        give_up_at = None if give_up_s is None else time.monotonic() + give_up_s
        attached = self._attach(model)
        if attached is None:
            return [Status.no_daemon] * len(pages)
        parts = _parts(pages, _BYTES_MAX if attached.region is not None else _COPIED_BYTES_MAX)
        clients = attached.clients
        if next(self._tasks) % 2 > 0:
            clients.reverse()  # so that tasks of one part use both
        moved = [[Status.error] * len(part) for part in parts]
        workers = [
            threading.Thread(
                target=self._move_parts,
                args=(storing, clients, attached.region, parts, number, moved, give_up_at),
                name=f"peercache-copy-{number}",
                daemon=True,  # a frozen daemon must not keep the interpreter from ending
            )
            for number in range(1, min(len(clients), len(parts)))
        ]
        for worker in workers:
            worker.start()
        try:
            self._move_parts(storing, clients, attached.region, parts, 0, moved, give_up_at)
        finally:  # nothing may move when this returns
            for worker in workers:
                worker.join()
        statuses = [status for part in moved for status in part]
        self._explain("stored" if storing else "loaded", statuses)
        return statuses

    def _move_parts(
        self,
        storing: bool,
        clients: Sequence[Client],
        region: Region | None,
        parts: Sequence[Sequence[Page]],
        number: int,
        moved: list[list[Status]],
        give_up_at: float | None,
    ) -> None:
        """The parts of one client: every part, or every second one. Sets `moved` of them."""
        for place in range(number, len(parts), len(clients)):
            parent = possible_parent(parts[place - 1][-1].key) if place > 0 else None
            moved[place] = self._move_part(
                storing, clients[number], region, parts[place], parent, give_up_at
            )
            last = moved[place][-1]
            if last in _HOPELESS:
                for later in range(place + len(clients), len(parts), len(clients)):
                    moved[later] = [last] * len(parts[later])
                return

    def _move_part(
        self,
        storing: bool,
        client: Client,
        region: Region | None,
        pages: Sequence[Page],
        parent: Key | None,
        give_up_at: float | None,
    ) -> list[Status]:
        keys = [page.key for page in pages]
        named: dict[str, Any] = {"give_up_s": left_s(give_up_at)}
        if storing:
            named = {"hashes": [page.event_hash for page in pages]}
        if region is None or not all(map(self._in_memory, pages)):
            views = [_ipc.view_at(page.address, page.length) for page in pages]
            copy = client.batch_set_buffers if storing else client.batch_get_buffers
            return copy(keys, views, parent=parent, **named)
        assert self._memory is not None, "a region is of some memory"
        offsets = [page.address - self._memory.address for page in pages]
        move = client.batch_set if storing else client.batch_get
        return move(keys, region, offsets, [page.length for page in pages], parent=parent, **named)

    def _in_memory(self, page: Page) -> bool:
        memory = self._memory
        return memory is not None and (
            memory.address <= page.address
            and page.address + page.length <= memory.address + memory.size_bytes
        )

    def _explain(self, done: str, statuses: Sequence[Status]) -> None:
        why = next((status for status in statuses if not status), None)
        if why is not None:
            bad = sum(not status for status in statuses)
            self._log_rarely.say(
                f"{done} {why}", f"{bad} of {len(statuses)} pages were not {done}: {why}"
            )

    def _attach(self, model: str) -> _Attached | None:
        attached = self._models.get(model)
        if attached is not None:
            return attached
        with self._attaching:
            if model not in self._models and not self._ended:
                if len(self._models) >= _MODELS_MAX:
                    self._log_rarely.say(
                        "models",
                        f"{model!r} shares no pages: at most {_MODELS_MAX} models of one LMCache "
                        "server can",
                    )
                    return None
                self._models[model] = self._attach_once(model)
            return self._models.get(model)

    def _attach_once(self, model: str) -> _Attached:
        namespace = make_model_namespace(self._settings, model)
        client = self._make_client(namespace)
        try:
            if self._memory is None:
                raise ValueError("LMCache's L1 is not host memory")
            return _Attached(client, client.register_memory(*self._memory), None)
        except (OSError, ValueError) as error:
            self._log_rarely.say(
                "copies",
                f"each page is copied once more, through staging memory: {error}; {REMEDY}",
            )
        client.close()
        first, second = (self._make_client(namespace, copies=True) for _ in range(2))
        return _Attached(first, None, second)

    def _make_client(self, namespace: str, *, copies: bool = False) -> Client:
        # LMCache reuses the memory of a load as soon as it has ended, also if it failed.
        how: dict[str, Any] = {"silence_timeout_s": None}
        if copies:
            how = {"staging_bytes": _STAGING_BYTES}
        return Client(
            self._settings.socket_path,
            namespace,
            name=self._name,
            timeout_s=self._settings.timeout_s,
            **how,
        )


def _parts(pages: Sequence[Page], bytes_max: int) -> list[Sequence[Page]]:
    """In requests of bounded size, each with at least one page."""
    parts: list[Sequence[Page]] = []
    begin = 0
    size_bytes = 0
    for end, page in enumerate(pages):
        if end > begin and (end - begin == _PAGES_MAX or size_bytes + page.length > bytes_max):
            parts.append(pages[begin:end])
            begin, size_bytes = end, 0
        size_bytes += page.length
    if begin < len(pages):
        parts.append(pages[begin:])
    return parts
