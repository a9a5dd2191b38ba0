"""The status that the removing worker gets."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from peercache_client import Status
from peercached.membership import NodeAddress
from peercached.peer.removals import told_owners
from peercached.peer.removals.driver import RemovalDriver
from peercached.peer.removals.open import Open, OpenRemovals
from peercached.proto import peer_pb2 as pb
from peercached.removals.ledger import Entry, RemovalId, Told

MEMBER = SimpleNamespace(has_left=False, why_outside="")


def test_removal_overtaken_by_a_clear_is_answered_cleared() -> None:
    """The driver learns of a clear while it saves the removal as unsure. The keys have other
    digests now, which nobody has removed."""
    driven: list[Open] = []

    async def persisted() -> None:
        driven[0].cleared = True
        driven[0].done.set()

    def drive(one: Open) -> asyncio.Task[None]:
        driven.append(one)
        return asyncio.ensure_future(asyncio.sleep(60))

    async def claim() -> int:
        own = SimpleNamespace(address=NodeAddress("a", 1, "10.0.0.1", 1, 2))
        member = SimpleNamespace(
            unsure={}, persist_unsure=lambda: None, persisted=persisted, driven=OpenRemovals()
        )
        driver = RemovalDriver(
            cast(Any, member),
            cast(Any, SimpleNamespace(own=own)),
            peers=cast(Any, None),
            failures=cast(Any, None),
            timeout_s=1.0,
            goodbye=cast(Any, MEMBER),
            cold=cast(Any, SimpleNamespace(is_on=False, differs=lambda _: "", stored=lambda _: {})),
        )
        cast(Any, driver)._drive = drive
        status, _, _ = await driver.remove(bytes(16), left_s=0.1, epoch=(bytes(16), 0))
        return status

    assert asyncio.run(claim()) == Status.stale


OWN = SimpleNamespace(address=NodeAddress("a", 1, "10.0.0.1", 1, 2))
OTHER = SimpleNamespace(address=NodeAddress("b", 2, "10.0.0.2", 1, 2))


class Driven:
    """A driver at "a", perhaps with a member "b". `told` has their answers: (view, untold)."""

    def __init__(self, *others: Any) -> None:
        self.view = SimpleNamespace(members=[], number=1)
        self.told: dict[str, list[tuple[int, list[str]]]] = {"a": [], "b": []}
        # The digests of b's requests. b"" asks whether b has told its owners of all removals.
        self.asked: list[bytes] = []
        self.carried_out = Told(1)  # a's first answer
        self.epoch = 1  # of the namespace at b
        self.owes = False  # b, so that its clears are not taken
        self.on_ask: Callable[[], object] = lambda: None
        placement = SimpleNamespace(
            own=OWN,
            view=self.view,
            nodes=dict(enumerate([OWN, *others])),
            others=list(others),
            find=lambda *_: OWN,
        )
        member = SimpleNamespace(
            driven=OpenRemovals(),
            carry_out=self._carry_out,
            tell_followers=self._tell,
            owes=False,
            to_ask_for=list,
            persist_changes=lambda: None,
            learn=self._learn,
            debts=SimpleNamespace(has_debt=lambda _: self.owes),
        )
        nobody = cast(Any, None)
        self._driver = RemovalDriver(
            cast(Any, member),
            cast(Any, placement),
            nobody,
            nobody,
            timeout_s=1.0,
            goodbye=cast(Any, MEMBER),
            cold=cast(Any, SimpleNamespace(is_on=False, differs=lambda _: "", stored=lambda _: {})),
        )
        cast(Any, self._driver)._calls.call = self._call

    async def round(self, one: Open) -> dict[str, str]:
        """Runs one round. Returns the missing steps, or {} if the removal is complete."""
        return {} if await self._driver._round(one) else one.missing

    async def _carry_out(self, id: RemovalId, digests: bytes, epoch: object) -> Entry:
        del epoch
        return Entry(id, digests, 1, 0.0, 0.0, kept=True, told=self.carried_out)

    def _learn(self, member: NodeAddress, told: pb.NamespaceEpoch) -> int:
        if member == OTHER.address and self.owes:
            raise LookupError("b has yet to compare")
        return told.epoch

    async def _tell(self) -> Told:
        return Told(*self.told["a"].pop(0))

    async def _call(self, node: Any, method: str, request: pb.RemoveRequest) -> pb.RemoveReply:
        assert (node, method) == (OTHER, "Remove")
        self.asked.append(request.digests)
        self.on_ask()
        view, untold = self.told["b"].pop(0)
        return pb.RemoveReply(
            kept=True, view_number=view, untold=untold, epoch=self.epoch, settled=True
        )


@pytest.fixture(autouse=True)
def no_statement_is_of_a_moment_ago(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(told_owners, "AGAIN_S", 0.0)


def removal(number: int = 1) -> Open:
    return Open(RemovalId(1, number), bytes(16), 0.0, None)


async def test_removal_waits_until_its_own_node_has_told_all_owners() -> None:
    driven, one = Driven(), removal()
    driven.carried_out = Told(1, ["c"])
    driven.told["a"] = [(1, ["c"]), (1, [])]
    assert await driven.round(one) == {"a": "it has not told c yet"}
    assert await driven.round(one) == {}


async def test_member_that_answered_is_asked_again_in_a_later_view() -> None:
    """An earlier answer says nothing about a member that has joined or returned since."""

    driven, one = Driven(OTHER), removal()

    def somebody_comes() -> None:
        driven.view.number = 2
        driven.on_ask = lambda: None

    driven.on_ask = somebody_comes
    driven.told = {"a": [(2, [])], "b": [(1, []), (1, []), (2, ["c"]), (2, [])]}
    assert await driven.round(one) == {"b": "it does not have the newest view yet"}
    assert await driven.round(one) == {"b": "it has not told c yet"}
    assert await driven.round(one) == {}
    assert driven.asked == [bytes(16), b"", b"", b""]


async def test_removal_waits_for_the_object_store_and_then_asks_all_members_again() -> None:
    """A member may have read the page from the store after its first answer."""

    driven, one = Driven(OTHER), removal()
    driven.told["b"] = [(1, []), (1, [])]
    is_written = asyncio.Event()

    async def write_down() -> None:
        await is_written.wait()

    task = asyncio.ensure_future(write_down())
    task.add_done_callback(lambda _: one.news.set())
    one.store_failure = "it is full"
    rounds = asyncio.ensure_future(driven._driver._rounds(one, task))
    for _ in range(20):
        await asyncio.sleep(0)
    assert one.missing == {"the object store": "it is full"} and not rounds.done()
    assert driven.asked == [bytes(16)]
    is_written.set()
    assert await rounds
    assert driven.asked == [bytes(16)] * 2


async def test_removal_is_not_complete_if_the_store_could_not_be_told() -> None:
    driven, one = Driven(), removal()

    async def break_down() -> None:
        raise OSError("broken")

    task = asyncio.ensure_future(break_down())
    await asyncio.wait([task])
    with pytest.raises(OSError, match="broken"):
        await driven._driver._rounds(one, task)


async def test_a_view_that_comes_at_the_last_moment_is_not_missed() -> None:
    driven, one = Driven(OTHER), removal()
    driven.told = {"a": [(2, [])], "b": [(1, []), (2, [])]}
    still_silent = driven._driver._still_silent

    async def and_somebody_comes(one: Open) -> dict[str, str]:
        driven.view.number = 2
        return await still_silent(one)

    cast(Any, driven._driver)._still_silent = and_somebody_comes
    assert await driven.round(one) == {"a": "it does not have the newest view yet"}
    assert await driven.round(one) == {}


async def test_open_removals_share_one_answer_per_member() -> None:
    """A view change costs one call for each member, however many removals are open."""

    driven, removals = Driven(OTHER), [removal(number) for number in range(100)]
    driven.told["b"] = [(1, list[str]())] * 100 + [(2, [])]

    async def one_is_silent(*_: object) -> dict[str, str]:
        return {"c": "it vanished without a goodbye"}

    cast(Any, driven._driver)._still_silent = one_is_silent
    for one in removals:
        assert await driven.round(one) == {"c": "it vanished without a goodbye"}
    driven.view.number = 2
    asked = len(driven.asked)
    driven.told["a"] = [(2, [])]
    await asyncio.gather(*(driven.round(one) for one in removals))
    for one in removals:
        await driven.round(one)
    assert driven.asked[asked:] == [b""]


async def test_members_answer_before_a_removal_does_not_count_for_it() -> None:
    driven = Driven(OTHER)
    driven.told["b"] = [(1, ["c"]), (1, []), (1, ["c"]), (1, ["c"])]
    assert await driven.round(removal(1)) == {}
    assert await driven.round(removal(2)) == {"b": "it has not told c yet"}


async def test_failed_ask_is_retried_and_not_cached() -> None:
    driven, one = Driven(), removal()
    driven.carried_out = Told(1, ["c"])
    one.settled = True
    with pytest.raises(IndexError):
        await driven.round(one)
    driven.told["a"] = [(1, [])]
    assert await driven.round(one) == {}


async def test_a_clear_of_a_member_that_owes_ends_no_removal_before_it_has_compared() -> None:
    driven = Driven(OTHER)
    one = Open(RemovalId(1, 1), bytes(16), 0.0, (bytes(16), 1), is_waited_for=True)
    driven.told["a"] = driven.told["b"] = [(1, [])] * 4
    driven.epoch, driven.owes = 2, True
    assert await driven.round(one) == {"b": "b has yet to compare"}
    assert not one.cleared
    driven.owes = False
    assert await driven.round(one) == {}
    assert one.cleared, "the worker removes the same keys in the new epoch"
