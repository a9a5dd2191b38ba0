"""The slots of vLLM's host memory as pages of the daemon, in place: a page is one slot."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Final

from peercache_client import Client, Region, Status
from peercache_client.rate_limited_log import RateLimitedLog
from peercache_client.vllm.settings import Settings

_LOOKUP_TIMEOUT_S: Final = 1.0
# Of one request to the daemon, which has the settings' timeout.
_PAGES_MAX: Final = 128
_BYTES_MAX: Final = 256 << 20


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
    ) -> None:
        """`make_namespace` is called once, when it attaches."""
        self._settings = settings
        self._name = name
        self._make_namespace = make_namespace
        self._address = address
        self._slots = slots
        self._slot_bytes = slot_bytes
        self._log_rarely = RateLimitedLog()
        self._attaching = threading.Lock()
        self._attached: tuple[Client, Region] | None = None
        self._ended = False

    def present(self, keys: Sequence[bytes], page_tokens: int = 0) -> list[bool]:
        """Whether some node has each of these pages: one request for all. Answers within 1 s.
        `page_tokens`: for the daemon's statistics, 0 to leave these keys out."""
        attached = self._attach()
        if attached is None:
            return [False] * len(keys)
        return attached[0].contains(keys, timeout_s=_LOOKUP_TIMEOUT_S, page_tokens=page_tokens)

    def store(
        self, keys: Sequence[bytes], slots: Sequence[int], parent: bytes | None
    ) -> list[Status]:
        """Sets each page from its slot."""
        return self._move(True, keys, slots, parent)

    def load(
        self, keys: Sequence[bytes], slots: Sequence[int], parent: bytes | None
    ) -> list[Status]:
        """Gets each page into its slot. When this returns, nothing writes there any more."""
        return self._move(False, keys, slots, parent)

    def close(self) -> None:
        """Call it when no other call is running. Later calls move nothing."""
        with self._attaching:
            attached, self._attached = self._attached, None
            self._ended = True
        if attached is not None:
            client, region = attached
            region.close()
            client.close()

    def _move(
        self, storing: bool, keys: Sequence[bytes], slots: Sequence[int], parent: bytes | None
    ) -> list[Status]:
        attached = self._attach()
        if attached is None:
            return [Status.no_daemon] * len(keys)
        client, region = attached
        move = client.batch_set if storing else client.batch_get
        pages = max(1, min(_PAGES_MAX, _BYTES_MAX // self._slot_bytes))
        statuses: list[Status] = []
        for begin in range(0, len(keys), pages):
            part = keys[begin : begin + pages]
            offsets = [slot * self._slot_bytes for slot in slots[begin : begin + pages]]
            statuses += move(part, region, offsets, self._slot_bytes, parent=parent)
            why = next((status for status in statuses[begin:] if not status), None)
            if why is not None:
                # The rest of a prompt is of little use, and each slow request costs its timeout.
                statuses += [why] * (len(keys) - len(statuses))
                break
            parent = part[-1]
        self._explain("stored" if storing else "loaded", statuses)
        return statuses

    def _explain(self, done: str, statuses: Sequence[Status]) -> None:
        why = next((status for status in statuses if not status), None)
        if why is not None:
            bad = sum(not status for status in statuses)
            self._log_rarely.say(
                f"{done} {why}", f"{bad} of {len(statuses)} chunks were not {done}: {why}"
            )

    def _attach(self) -> tuple[Client, Region] | None:
        attached = self._attached
        if attached is not None:
            return attached
        with self._attaching:
            if self._attached is None and not self._ended:
                self._attached = self._attach_once()
                self._ended = self._attached is None
            return self._attached

    def _attach_once(self) -> tuple[Client, Region] | None:
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
            region = client.register_memory(self._address, self._slots * self._slot_bytes)
        except Exception as error:
            self._log_rarely.say(
                "attach", f"vLLM shares no KV pages with other hosts: {error}", trace=True
            )
            if client is not None:
                client.close()
            return None
        return client, region
