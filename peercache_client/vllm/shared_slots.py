"""The slots of vLLM's host memory as pages of the daemon, in place: a page is one slot.

The host memory is one range of addresses. vLLM may back it with several files, since the kernel
fills one file slowly. Each file's piece is a region of its own. A slot that lies in two of them is
not shared.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from peercache_client import Cancel, Client, Status, memory
from peercache_client.forecast import Forecast
from peercache_client.page_names import PageHash
from peercache_client.rate_limited_log import RateLimitedLog
from peercache_client.region import Region, RegionIndex
from peercache_client.vllm.settings import Settings
from peercache_client.wire import Key
from peercache_client.worth import Worth, left_s

_LOOKUP_TIMEOUT_S: Final = 1.0
# Of one request to the daemon, which has the settings' timeout.
_PAGES_MAX: Final = 128
_BYTES_MAX: Final = 256 << 20


class _Attached(NamedTuple):
    client: Client
    regions: Sequence[Region]
    places: RegionIndex


class SharedSlots:
    """Thread safe. It raises nothing: a page that cannot be moved has a falsy status.

    It attaches to the daemon at the first call, on that call's thread. The memory must stay mapped
    until `close`.
    """

    def __init__(
        self,
        settings: Settings,
        name: str,
        make_namespace: Callable[[], str],
        address: int,
        slots: int,
        slot_bytes: int,
        worth: Worth,
        event_hash: Callable[[bytes], PageHash] = lambda _: None,
        chunk_tokens: int = 0,
    ) -> None:
        """`make_namespace` is called once, when it attaches. `worth`: judges loads, and limits
        them. `event_hash`: what events call the page of a key; `chunk_tokens`: the tokens of
        one."""
        self._event_hash = event_hash
        self._chunk_tokens = chunk_tokens
        self._settings = settings
        self._name = name
        self._make_namespace = make_namespace
        self._address = address
        self._slots = slots
        self._slot_bytes = slot_bytes
        self._worth = worth
        self._log_rarely = RateLimitedLog()
        self._attaching = threading.Lock()
        self._attached: _Attached | None = None
        self._ended = False

    def forecast(self, keys: Sequence[bytes], page_tokens: int = 0) -> Forecast:
        """Whether some node has each of these pages, and how long they take to load: one request
        for all. Answers within 1 s. `page_tokens`: for the daemon's statistics, 0 to leave these
        keys out."""
        attached = self._attach()
        if attached is None:
            return Forecast([False] * len(keys), [], [])
        return attached.client.forecast(
            keys,
            timeout_s=_LOOKUP_TIMEOUT_S,
            page_tokens=page_tokens,
            every=True,
            judged=self._worth.take_news(),
        )

    def wait_for(
        self, keys: Sequence[bytes], page_tokens: int, wait_s: float, cancel: Cancel
    ) -> int:
        """Waits for pages that are being stored. Counts those before the first missing one. To be
        called after `forecast` with the same keys."""
        attached = self._attach()
        if attached is None:
            return 0
        return attached.client.batch_exists(
            keys,
            timeout_s=_LOOKUP_TIMEOUT_S,
            page_tokens=page_tokens,
            wait_s=wait_s,
            again=True,
            cancel=cancel,
        )

    def hint(self, envelope: bytes, keys: Sequence[Key]) -> None:
        """Hands an envelope of hints on, with the pages of the request that it came with. TypeError
        or ValueError for an envelope that no daemon would take."""
        if (attached := self._attach()) is not None:
            attached.client.hint(envelope, keys)

    def store(
        self, keys: Sequence[bytes], slots: Sequence[int], parent: bytes | None
    ) -> list[Status]:
        """Sets each page from its slot."""
        return self._move(True, keys, slots, parent)

    def load(
        self, keys: Sequence[bytes], slots: Sequence[int], parent: bytes | None
    ) -> list[Status]:
        """Gets each page into its slot. When this returns, nothing writes there any more. A load
        that takes far longer than forecast is given up."""
        limit_s = self._worth.give_up_s(keys)
        statuses = self._move(False, keys, slots, parent, limit_s)
        self._worth.loaded(keys, 0 if limit_s is None else statuses.count(Status.deadline))
        return statuses

    def close(self) -> None:
        """Call it when no other call is running. Later calls move nothing."""
        with self._attaching:
            attached, self._attached = self._attached, None
            self._ended = True
        if attached is not None:
            for region in attached.regions:
                region.close()
            attached.client.close()

    def _move(
        self,
        storing: bool,
        keys: Sequence[bytes],
        slots: Sequence[int],
        parent: bytes | None,
        give_up_s: float | None = None,
    ) -> list[Status]:
        give_up_at = None if give_up_s is None else time.monotonic() + give_up_s
        attached = self._attach()
        if attached is None:
            return [Status.no_daemon] * len(keys)
        client = attached.client
        pages = max(1, min(_PAGES_MAX, _BYTES_MAX // self._slot_bytes))
        statuses = [Status.bad_range] * len(keys)
        placed = []
        for i, slot in enumerate(slots):
            address = self._address + slot * self._slot_bytes
            if (place := attached.places.find(address, self._slot_bytes)) is not None:
                placed.append((i, *place))
        for begin in range(0, len(placed), pages):
            numbers, regions, offsets = zip(*placed[begin : begin + pages], strict=True)
            part = [keys[i] for i in numbers]
            size = self._slot_bytes
            if storing:
                hashes = [self._event_hash(key) for key in part]
                moved = client.batch_set(
                    part, regions, offsets, size, parent=parent, hashes=hashes,
                    block_tokens=self._chunk_tokens,
                )  # fmt: skip
            else:
                moved = client.batch_get(
                    part, regions, offsets, size, parent=parent, give_up_s=left_s(give_up_at)
                )
            for i, status in zip(numbers, moved, strict=True):
                statuses[i] = status
            why = next((status for status in moved if not status), None)
            if why is not None:
                # The rest of a prompt is of little use, and each slow request costs its timeout.
                for i, *_ in placed[begin + pages :]:
                    statuses[i] = why
                break
            parent = part[-1]
        self._explain("stored" if storing else "loaded", [statuses[i] for i, *_ in placed])
        return statuses

    def _explain(self, done: str, statuses: Sequence[Status]) -> None:
        why = next((status for status in statuses if not status), None)
        if why is not None:
            bad = sum(not status for status in statuses)
            self._log_rarely.say(
                f"{done} {why}", f"{bad} of {len(statuses)} chunks were not {done}: {why}"
            )

    def _attach(self) -> _Attached | None:
        attached = self._attached
        if attached is not None:
            return attached
        with self._attaching:
            if self._attached is None and not self._ended:
                self._attached = self._attach_once()
                self._ended = self._attached is None
            return self._attached

    def _attach_once(self) -> _Attached | None:
        client: Client | None = None
        try:
            client = Client(
                self._settings.socket_path,
                self._make_namespace(),
                name=self._name,
                timeout_s=self._settings.timeout_s,
                # vLLM reuses a slot as soon as its load has ended, also one that failed.
                silence_timeout_s=None,
            )
            pieces = memory.pieces_by_file(self._address, self._slots * self._slot_bytes)
            regions = [client.register_memory(*piece) for piece in pieces]
        except Exception as error:
            self._log_rarely.say(
                "attach", f"vLLM shares no KV pages with other hosts: {error}", trace=True
            )
            if client is not None:
                client.close()
            return None
        starts = [address - self._address for address, _ in pieces]
        cut = {start // self._slot_bytes for start in starts if start % self._slot_bytes}
        if cut:
            self._log_rarely.say(
                "cut", f"{len(cut)} of vLLM's {self._slots} slots lie in two files: not shared"
            )
        return _Attached(client, regions, RegionIndex(regions))
