"""A node recognizes the right store by its marker. The stores are folders."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest
from harness.cold import any_marker

from peercached.cold.marker import FOLDER, NAME, Marker
from peercached.cold.requests import Requests, StoreError

SECRET = b"one secret"


class Store:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self.requests = Requests(f"file://{folder}", 1000)

    def markers(self) -> list[str]:
        return sorted(f"{FOLDER}/{path.name}" for path in (self.folder / FOLDER).glob("store-*"))

    async def look(self, marker: Marker) -> None:
        while True:
            paths = await self.requests.names(FOLDER, "", 100)
            if await marker.check(paths, self.requests):
                return


async def test_node_uses_the_store_that_it_or_its_members_remember(tmp_path: Path) -> None:
    right, empty, other = (Store(tmp_path / name) for name in ("right", "empty", "other"))
    (tmp_path / "state").mkdir()
    first = any_marker(str(tmp_path / "state"))
    await right.look(first)
    assert len(right.markers()) == 1 and first.is_here

    # Also after a restart, by state_dir.
    for marker in (first, any_marker(str(tmp_path / "state"))):
        with pytest.raises(StoreError, match="does not have the marker"):
            await empty.look(marker)
        assert right.markers()[0] in marker.problem and right.markers()[0] in marker.remedy
        assert not marker.is_here and empty.markers() == []
        await right.look(marker)
        assert marker.is_here and not marker.problem and marker.returns

    # By a member's word. Without it, nobody knows better.
    fresh = Marker("", "b", "file:///store", SECRET)
    for store in (empty, right):
        with pytest.raises(StoreError, match="no member has told"):
            await store.look(fresh)
    fresh.hear("a", first.remembered)
    with pytest.raises(StoreError, match="does not have the marker"):
        await empty.look(fresh)
    await right.look(fresh)
    assert fresh.remembered == first.remembered and empty.markers() == []

    # Two stores in one cluster: the older one counts, and the other node knows why not.
    lost = any_marker(node_id="b")
    await other.look(lost)
    lost.hear("a", first.remembered)
    first.hear("b", lost.remembered)
    with pytest.raises(StoreError, match="a knows an older store"):
        await other.look(lost)
    await right.look(first)
    assert first.strangers == ["b"] and first.differs(lost.remembered)
    await right.look(lost)  # its folder is mounted now
    first.hear("b", lost.remembered)
    assert lost.is_here and first.strangers == [] == lost.strangers

    # Other URLs and secrets: what state_dir has is of another store.
    assert not any_marker(str(tmp_path / "state"), secret=b"another").remembered
    with pytest.raises(ValueError, match="tells of a store with"):
        first.hear("b", "../../etc")


async def test_markers_that_vanish_or_are_made_at_once_do_not_lose_the_store(
    tmp_path: Path,
) -> None:
    store = Store(tmp_path / "store")
    one, two = any_marker(), any_marker(node_id="b")
    for marker in (one, two):  # both have listed before either put
        assert not await marker.check([], store.requests)
    for marker in (one, two):
        await store.look(marker)
        marker.hear("the other", (two if marker is one else one).remembered)
        await store.look(marker)
    assert len(store.markers()) == 2 and not one.strangers and not two.strangers

    shutil.rmtree(store.folder / FOLDER)
    with pytest.raises(StoreError):
        await store.look(one)
    assert store.markers() == []
    # An operator accepts another store.
    new = Store(tmp_path / "new")
    with pytest.raises(StoreError):
        await new.look(one)
    await new.requests.put(one.remedy.split()[-2], b"")
    await new.look(one)


async def test_other_secret_is_told_to_the_later_cluster_and_not_shown(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    first, later = any_marker(), any_marker(secret=b"another secret")
    await store.look(first)
    while time.time_ns() // 1_000_000 <= int(first.remembered[:13]):
        pass
    for marker in (later, first):
        await store.look(marker)
    assert later.others == [first.path_of(first.remembered)] and first.others == []
    assert len(store.markers()) == 2 and all(map(NAME.fullmatch, store.markers()))
    for secret in (SECRET, b"another secret"):
        shown = (secret.hex(), secret.decode())
        assert not any(text in name for text in shown for name in store.markers())
