"""The methods that LMCache calls, as `L2AdapterInterface` of lmcache 0.5.5 to 0.5.7 defines
them."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from lmcache.lmcache_native import Bitmap
from lmcache.v1.distributed.internal_api import L2StoreResult
from lmcache.v1.distributed.l2_adapters.base import L2AdapterInterface
from lmcache.v1.platform import create_event_notifier

from peercache_client import Status
from peercache_client.forecast import Forecast
from peercache_client.lmcache.chunk_order import Chunks, by_chunk, name_of
from peercache_client.lmcache.event_hashes import event_hash, uses_integers
from peercache_client.lmcache.identity import FLAT, layout_of, make_key, make_layout_tag
from peercache_client.lmcache.l1_pages import L1Pages, Memory, Page
from peercache_client.lmcache.settings import Settings
from peercache_client.tasks import Tasks
from peercache_client.worth import Worth

# Requests wait for lookups and loads, so these must not queue behind stores.
_LOOKUP_THREADS: Final = 2
_LOAD_THREADS: Final = 4
_STORE_THREADS: Final = 2
_TOUCHES_MAX: Final = 64
# Layouts that are remembered for lookups without a hint.
_LAYOUTS_MAX: Final = 1024
# The longest wait for a transfer at the end, beyond the timeout of its requests.
_SHUTDOWN_SLACK_S: Final = 2.0


class _Move(NamedTuple):
    keys: Sequence[Any]  # ObjectKeys
    objects: Sequence[Any]  # MemoryObjs, one per key


class _Lookup(NamedTuple):
    keys: Sequence[Any]
    hints: dict[int, Any]  # MemoryLayoutDesc of some object groups


class PeerCacheAdapter(L2AdapterInterface):  # type: ignore[misc]  # Any, where there is no lmcache
    """One per LMCache server. Thread safe. No call waits for the daemon, but `close`.

    After construction nothing raises. A failure of the daemon is logged. It ends as a miss, and the
    engine computes the chunk.

    LMCache's lock of a page needs nothing of the daemon: LMCache counts a page that is gone when it
    is loaded as a miss. A hold would even lose hits, because a holder promises only pages that are
    in its pool, and those only up to a quarter of it.
    """

    def __init__(self, params: dict[str, Any], l1_memory_desc: Any = None) -> None:
        """Works without a daemon. `params`: the entry's `adapter_params`, see `Settings`.
        ValueError if they are invalid, or vLLM's variable for hashes in events."""
        super().__init__()
        self._settings = Settings.parse(params)
        self._worth = Worth(
            self._settings.chunk_tokens,
            self._settings.prefill_tokens_per_s,
            self._settings.give_up_factor,
        )
        self._event_integers = uses_integers()
        memory = None if l1_memory_desc is None else Memory(l1_memory_desc.ptr, l1_memory_desc.size)
        self._pages = L1Pages(self._settings, f"lmcache pid {os.getpid()}", memory)
        # By model and object group: of the last objects that were stored or loaded.
        self._layouts: dict[tuple[str, int], str] = {}
        self._counting = threading.Lock()
        self._counted: Counter[tuple[str, str]] = Counter()
        self._store_notifier = create_event_notifier()
        self._lookup_notifier = create_event_notifier()
        self._load_notifier = create_event_notifier()
        self._stores: Tasks[_Move, Any] = Tasks(
            "peercache-store",
            _STORE_THREADS,
            self._store,
            lambda _: L2StoreResult(False, 0),
            self._store_notifier.notify,
        )
        self._lookups: Tasks[_Lookup, Any] = Tasks(
            "peercache-lookup",
            _LOOKUP_THREADS,
            self._look_up,
            lambda lookup: Bitmap(len(lookup.keys)),
            self._lookup_notifier.notify,
        )
        self._touches: Tasks[Sequence[Any], None] = Tasks(
            "peercache-touch", 1, self._touch, lambda _: None
        )
        self._loads: Tasks[_Move, Any] = Tasks(
            "peercache-load",
            _LOAD_THREADS,
            self._load,
            lambda move: Bitmap(len(move.keys)),
            self._load_notifier.notify,
        )

    # --- event descriptors -----------------------------------------------------------------

    def get_store_event_fd(self) -> int:
        return int(self._store_notifier.fileno())

    def get_lookup_and_lock_event_fd(self) -> int:
        return int(self._lookup_notifier.fileno())

    def get_load_event_fd(self) -> int:
        return int(self._load_notifier.fileno())

    # --- stores ----------------------------------------------------------------------------

    def submit_store_task(self, keys: list[Any], objects: list[Any]) -> int:
        self._worth.stored(_names(keys))
        return self._stores.submit(_Move(keys, objects))

    def pop_completed_store_tasks(self) -> dict[int, Any]:
        return self._stores.take_all()

    def _store(self, move: _Move) -> Any:
        """LMCache knows only whether all pages of a task were stored."""
        statuses = self._move("store", self._pages.store, move)
        stored_bytes = sum(
            each.get_size() for each, status in zip(move.objects, statuses, strict=True) if status
        )
        return L2StoreResult(all(statuses), stored_bytes)

    # --- lookups ---------------------------------------------------------------------------

    def submit_lookup_and_lock_task(
        self, keys: list[Any], group_layout_descs: dict[int, Any]
    ) -> int:
        return self._lookups.submit(_Lookup(keys, group_layout_descs))

    def query_lookup_and_lock_result(self, task_id: int) -> Any:
        return self._lookups.take(task_id)

    def submit_unlock(self, keys: list[Any]) -> None:
        """Nothing is locked."""

    def submit_touch(self, keys: list[Any]) -> None:
        """Called since 0.5.7: chunks that LMCache or the engine had already. Dropped if many wait,
        since nothing depends on it."""
        self._touches.take_all()  # nobody asks for these results
        if self._touches.unfinished < _TOUCHES_MAX:
            self._touches.submit(keys)

    def _touch(self, keys: Sequence[Any]) -> None:
        for model, places in _by_model(keys).items():
            asked = [
                make_key(key, self._layouts.get((model, key.object_group_id), FLAT))
                for key in map(keys.__getitem__, places)
            ]
            self._pages.touch(model, asked)

    def _look_up(self, lookup: _Lookup) -> Any:
        """In each layout that the object may have when it is loaded, so that it does not matter if
        LMCache gives no hint, or that of objects before their serializer. A page that is found in
        another layout is a miss when it is loaded.

        Chunks that are quicker to compute than to load count as missing."""
        hints = {
            group: make_layout_tag(hint.shapes, hint.dtypes)
            for group, hint in lookup.hints.items()
            if hint.shapes
        }
        found = Bitmap(len(lookup.keys))
        if self._settings.stores_only:
            return found
        for model, places in _by_model(lookup.keys).items():
            chunks = by_chunk(lookup.keys, places)
            asked = chunks.places if chunks is not None else places
            keys: list[bytes] = []
            ends: list[int] = []  # of the keys of each place
            for place in asked:
                key = lookup.keys[place]
                used = self._layouts.get((model, key.object_group_id), FLAT)
                tags = dict.fromkeys((hints.get(key.object_group_id, used), used))
                keys += [make_key(key, tag) for tag in tags]
                ends.append(len(keys))
            forecast = self._pages.forecast(model, keys, self._worth.take_news()).joined(ends)
            wanted = len(asked) if chunks is None else self._wanted(chunks, forecast)
            for place, there in zip(asked[:wanted], forecast.present[:wanted], strict=True):
                if there:
                    found.set(place)
        return found

    def _wanted(self, chunks: Chunks, forecast: Forecast) -> int:
        """How many of the keys to find at most."""
        best = self._worth.judge(chunks.names, forecast, chunks.keys_each)
        end = best * chunks.keys_each
        is_cut = end < len(chunks.places) and all(forecast.present[end : end + chunks.keys_each])
        return end if is_cut else len(chunks.places)

    # --- loads -----------------------------------------------------------------------------

    def submit_load_task(self, keys: list[Any], objects: list[Any]) -> int:
        return self._loads.submit(_Move(keys, objects))

    def query_load_result(self, task_id: int) -> Any:
        return self._loads.take(task_id)

    def _load(self, move: _Move) -> Any:
        """A load that takes far longer than forecast is given up."""
        names = _names(move.keys)
        limit_s = self._worth.give_up_s(names)
        load = partial(self._pages.load, give_up_s=limit_s)
        statuses = self._move("load", load, move)
        loaded = Bitmap(len(move.keys))
        late = set()
        for place, status in enumerate(statuses):
            if status:
                loaded.set(place)
            elif status is Status.deadline and limit_s is not None:
                late.add(name_of(move.keys[place]))
        self._worth.loaded(names, len(late))
        return loaded

    def _move(
        self, operation: str, move_pages: Callable[[str, Sequence[Page]], list[Status]], move: _Move
    ) -> list[Status]:
        pages = [self._page(key, each) for key, each in zip(move.keys, move.objects, strict=True)]
        statuses = [Status.error] * len(pages)
        for model, places in _by_model(move.keys).items():
            moved = move_pages(model, [pages[place] for place in places])
            for place, status in zip(places, moved, strict=True):
                statuses[place] = status
        with self._counting:
            self._counted.update((operation, status.name) for status in statuses)
        return statuses

    def _page(self, key: Any, memory_object: Any) -> Page:
        tag = layout_of(memory_object)
        if len(self._layouts) >= _LAYOUTS_MAX:
            self._layouts.clear()
        self._layouts[key.model_name, key.object_group_id] = tag
        return Page(
            make_key(key, tag),
            memory_object.data_ptr,
            memory_object.get_size(),
            event_hash(key, self._event_integers),
        )

    # --- the rest --------------------------------------------------------------------------

    def get_memory_tags(self) -> Any:
        """Called since 0.5.7, which has these types. Other hosts share the pages."""
        from lmcache.v1.distributed.api import MemoryResidency, MemorySegment, MemoryTags

        return MemoryTags(MemorySegment.DRAM, MemoryResidency.REMOTE)

    def report_status(self) -> dict[str, Any]:
        """Healthy also without a daemon: LMCache goes on, and a restart of it would not help."""
        with self._counting:
            counted = dict(self._counted)
        pages: dict[str, dict[str, int]] = {}
        for (operation, status), count in sorted(counted.items()):
            pages.setdefault(operation, {})[status] = count
        return {
            "is_healthy": self._stores.alive and self._lookups.alive and self._loads.alive,
            "type": "PeerCacheAdapter",
            "socket_path": self._settings.socket_path,
            "daemon_error": self._pages.last_error,
            "in_place": self._pages.in_place,
            "pages": pages,
        }

    def close(self) -> None:
        """Stored pages stay in the cache. If the daemon hangs in the middle of a transfer, the
        threads and their descriptors are left to the end of the process. The daemon then writes
        into shared memory that LMCache has unmapped, and nothing else has."""
        end_s = time.monotonic() + self._settings.timeout_s + _SHUTDOWN_SLACK_S
        every = (self._lookups, self._touches, self._loads, self._stores)
        ended = [tasks.close(end_s) for tasks in every]
        if not all(ended):
            return
        self._pages.close()
        for notifier in (self._store_notifier, self._lookup_notifier, self._load_notifier):
            notifier.close()


def _names(keys: Sequence[Any]) -> list[Hashable]:
    return list(dict.fromkeys(map(name_of, keys)))


def _by_model(keys: Sequence[Any]) -> dict[str, list[int]]:
    """The places of each model's keys, in order. Usually there is one model."""
    places: dict[str, list[int]] = {}
    for place, key in enumerate(keys):
        places.setdefault(key.model_name, []).append(place)
    return places
