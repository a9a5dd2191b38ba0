"""Epochs of cleared namespaces on disk. They load as saved, and are confirmed only once saved."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from harness.fake_engine import digest_of

from peercached.directory.epoch_keeper import EpochKeeper, NotKept
from peercached.directory.epoch_store import EpochStore

SOME = {digest_of("a"): 3, digest_of("b"): 1}


def test_saved_epochs_are_loaded_for_the_same_node(tmp_path: Path) -> None:
    EpochStore(str(tmp_path), "n").save(SOME)
    assert EpochStore(str(tmp_path), "n").load() == (SOME, "")
    assert EpochStore(str(tmp_path), "another").load() == ({}, "")


def test_without_a_folder_nothing_is_known() -> None:
    store = EpochStore("", "n")
    store.save(SOME)
    epochs, why = store.load()
    assert epochs == {} and "state_dir" in why


@pytest.mark.parametrize(
    "text", ["", "{}", '{"format": 2, "epochs": {}}', '{"format": 1, "epochs": {"00": 1}}', "[1]"]
)
def test_unreadable_epoch_file_loads_nothing_and_is_reported(tmp_path: Path, text: str) -> None:
    store = EpochStore(str(tmp_path), "n")
    assert store.path is not None
    store.path.write_text(text)
    epochs, why = store.load()
    assert epochs == {} and "cannot be read" in why


class SlowStore(EpochStore):
    """Counts saves, and blocks each until the test allows it."""

    def __init__(self, folder: Path) -> None:
        super().__init__(str(folder), "n")
        self.saves = 0
        self.fails = False

    def save(self, epochs: dict[bytes, int]) -> None:
        self.saves += 1
        if self.fails:
            raise OSError("no room")
        super().save(epochs)


def test_kept_returns_only_after_the_last_raise_is_on_disk(tmp_path: Path) -> None:
    store = SlowStore(tmp_path)
    epochs: dict[bytes, int] = {}
    keeper = EpochKeeper(store, cast(Any, SimpleNamespace(namespace_epochs=lambda: epochs)))

    async def clear(number: int) -> None:
        epochs[digest_of(str(number))] = number
        keeper.raised()
        await keeper.kept()
        assert store.load()[0][digest_of(str(number))] == number

    async def many() -> None:
        await asyncio.gather(*(clear(number) for number in range(1, 50)))
        await keeper.kept()
        assert store.saves < 10, "raises at the same time share a write"
        await keeper.stop()

    asyncio.run(many())


def test_failed_epoch_save_is_reported_and_retried(tmp_path: Path) -> None:
    store = SlowStore(tmp_path)
    keeper = EpochKeeper(store, cast(Any, SimpleNamespace(namespace_epochs=lambda: SOME)))

    async def story() -> None:
        store.fails = True
        keeper.raised()
        with pytest.raises(NotKept, match="no room"):
            await keeper.kept()
        assert keeper.problem == "no room"
        store.fails = False
        keeper.raised()
        await keeper.kept()
        assert keeper.problem == ""
        assert store.load() == (SOME, "")

    asyncio.run(story())
