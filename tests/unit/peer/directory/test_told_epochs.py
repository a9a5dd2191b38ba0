"""Epochs of cleared namespaces are confirmed only once they are on disk."""

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest
from harness.fake_engine import FakeEngine, digest_of

from peercached.directory.epoch_store import EpochStore
from peercached.directory.first_clears import FirstClears
from peercached.peer.directory.shared_epochs import NotPersisted, SharedEpochs


def shared_epochs(engine: FakeEngine, store: EpochStore) -> SharedEpochs:
    nobody = cast(Any, None)
    first_clears = FirstClears(lambda: 0.0)
    return SharedEpochs(cast(Any, engine), store, first_clears, nobody, nobody, nobody)


class Counting(EpochStore):
    saves = 0

    def save(self, epochs: dict[bytes, int]) -> None:
        self.saves += 1
        super().save(epochs)


def test_kept_returns_only_after_the_last_raise_is_on_disk(tmp_path: Path) -> None:
    store = Counting(str(tmp_path), "n")
    epochs = shared_epochs(FakeEngine(), store)

    async def clear(number: int) -> None:
        epochs.raise_to(digest_of(str(number)), number)
        await epochs.persisted()
        assert store.load()[0][digest_of(str(number))] == number

    async def many() -> None:
        await asyncio.gather(*(clear(number) for number in range(1, 50)))
        await epochs.persisted()
        assert store.saves < 10, "raises at the same time share a write"
        await epochs.stop()

    asyncio.run(many())


def test_failed_epoch_save_is_reported_and_retried(tmp_path: Path) -> None:
    store = EpochStore(str(tmp_path), "n")
    engine = FakeEngine()
    engine.epochs = {digest_of("a"): 3}
    epochs = shared_epochs(engine, store)
    assert store.path is not None
    in_the_way = store.path.with_suffix(".new")
    in_the_way.mkdir()

    async def story() -> None:
        epochs.persist()
        with pytest.raises(NotPersisted, match="directory"):
            await epochs.persisted()
        assert "directory" in store.problem
        in_the_way.rmdir()
        await epochs.persisted()
        assert store.problem == ""
        assert store.load() == (engine.epochs, "")

    asyncio.run(story())
