"""One worker's job against a fake client over a dict."""

from collections.abc import Sequence
from typing import Any, cast

from demo.worker import Worker
from peercache_client import Client, Status

PAGE_BYTES = 4096


class FakeRegion:
    def __init__(self, size: int) -> None:
        self.view = memoryview(bytearray(size))


class FakeClient:
    """Keeps the pages. It reports the `lost` keys as present, but does not return them."""

    def __init__(self) -> None:
        self.pages: dict[bytes, bytes] = {}
        self.lost: dict[bytes, Status] = {}
        self.parents: list[bytes | None] = []

    def alloc(self, size: int) -> FakeRegion:
        return FakeRegion(size)

    def batch_exists(self, keys: Sequence[bytes]) -> int:
        for place, key in enumerate(keys):
            if key not in self.pages:
                return place
        return len(keys)

    def batch_get(
        self, keys: Sequence[bytes], region: FakeRegion, offsets: Sequence[int], length: int
    ) -> list[Status]:
        statuses = []
        for key, offset in zip(keys, offsets, strict=True):
            status = self.lost.get(key, Status.ok)
            if status:
                region.view[offset : offset + length] = self.pages[key]
            statuses.append(status)
        return statuses

    def batch_set(
        self,
        keys: Sequence[bytes],
        region: FakeRegion,
        offsets: Sequence[int],
        length: int,
        parent: bytes | None = None,
    ) -> list[Status]:
        self.parents.append(parent)
        for key, offset in zip(keys, offsets, strict=True):
            self.pages[key] = bytes(region.view[offset : offset + length])
        return [Status.ok] * len(keys)


def worker_over(client: Any, batch_pages: int = 4) -> Worker:
    return Worker(cast(Client, client), page_bytes=PAGE_BYTES, batch_pages=batch_pages, salt="test")


def test_a_first_job_sets_everything_and_a_second_gets_it() -> None:
    client = FakeClient()
    worker = worker_over(client)
    first = worker.do(range(10), range(10, 13))
    assert (first.hit_pages, first.set_pages, first.wrong_pages) == (0, 13, 0)
    second = worker.do(range(13))
    assert (second.hit_pages, second.set_pages, second.wrong_pages) == (13, 0, 0)
    assert second.got_bytes == 13 * PAGE_BYTES


def test_worker_sets_promised_but_missed_pages_again() -> None:
    client = FakeClient()
    worker = worker_over(client)
    worker.do(range(10))
    client.lost = {worker.key(6): Status.stale}
    outcome = worker.do(range(10))
    assert (outcome.promised_pages, outcome.hit_pages, outcome.set_pages) == (10, 6, 4)
    assert outcome.missed == {"stale": 1}
    assert client.parents[-1] == worker.key(5)


def test_every_batch_of_a_chain_names_the_key_before_it() -> None:
    client = FakeClient()
    worker = worker_over(client)
    worker.do(range(10))
    assert client.parents == [None, worker.key(3), worker.key(7)]


def test_wrong_bytes_are_found_and_described() -> None:
    client = FakeClient()
    worker = worker_over(client)
    worker.do(range(10))
    client.pages[worker.key(2)] = client.pages[worker.key(3)]
    outcome = worker.do(range(10))
    assert outcome.wrong_pages == 1
    assert worker.key(2).decode() in outcome.wrong[0]


def test_a_client_that_raises_is_an_error_of_the_outcome() -> None:
    class Raising(FakeClient):
        def batch_exists(self, keys: Sequence[bytes]) -> int:
            raise RuntimeError("no daemon")

    assert worker_over(Raising()).do([1, 2]).error == "RuntimeError: no daemon"
