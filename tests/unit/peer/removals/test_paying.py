"""A process that was away serves nothing until it has compared, whatever fails on the way."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from peercached.membership import NodeAddress
from peercached.peer.removals import catch_up
from peercached.peer.removals.catch_up import RemovalCatchUp


class Paying(RemovalCatchUp):
    """At "a". Asking has the next result of `tries` each time, as soon as `answers` is set."""

    def __init__(self, tries: list[bool | Exception]) -> None:
        debts = SimpleNamespace(owes=False)
        self.saved, self.answers = asyncio.Event(), asyncio.Event()
        self.said: list[bool] = []  # each call of set_paused()
        self.shown = asyncio.Event()
        engine = SimpleNamespace(
            set_paused=self.said.append,
            set_taking=lambda _: None,
            namespace_epochs=dict,
            show_older=self.shown.set,
        )
        removals = SimpleNamespace(
            debts=debts, waits_for=set(), persisted=self.saved.wait, epochs_before={}
        )
        removals.owes_nobody = self._owes_nobody
        self.debts, self.paid = debts, asyncio.Event()
        placement = SimpleNamespace(find_process=lambda by: by)
        super().__init__(
            cast(Any, engine),
            cast(Any, placement),
            cast(Any, None),
            cast(Any, Owing(removals)),
            timeout_s=1.0,
            wait_s=1.0,
            cluster=cast(Any, None),
        )
        self._tries = tries

    def _owes_nobody(self) -> None:
        self.debts.owes = False
        self.paid.set()

    async def _try_until(self, deadline: float) -> bool:
        await self.answers.wait()
        tried = self._tries.pop(0)
        if isinstance(tried, Exception):
            raise tried
        return tried


class Owing:
    """Removals, as far as a debt needs them."""

    last_settled = ended_at = 0

    def __init__(self, parts: SimpleNamespace) -> None:
        self.__dict__.update(parts.__dict__)

    @property
    def owes(self) -> bool:
        return bool(self.debts.owes)  # type: ignore[attr-defined]


def member(name: str) -> NodeAddress:
    return NodeAddress(name, ord(name), "10.0.0.1", 1, 2)


async def test_after_a_failure_it_stays_paused_and_asks_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(catch_up, "ASK_AGAIN_MAX_S", 0.0)
    node = Paying([RuntimeError("the disk fails"), True])
    node.saved.set()
    node.answers.set()
    node.must_compare(member("b"))
    assert node.said == [True] and node.debts.owes
    await cast(Any, node._task)
    assert node.said == [True, False] and not node.debts.owes


async def test_a_node_that_holds_pages_back_asks_again_after_a_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(catch_up, "ASK_AGAIN_MAX_S", 0.0)
    node = Paying([RuntimeError("no thread is left"), True])
    node.answers.set()
    await node._go_on()
    assert node.shown.is_set()


async def test_a_debt_that_has_ended_does_not_end_the_pause_of_the_next() -> None:
    node = Paying([True, True])
    node.answers.set()
    node.must_compare(member("b"))
    first = cast(Any, node._task)
    await asyncio.wait_for(node.paid.wait(), 10)
    node.answers.clear()
    node.must_compare(member("c"))  # while the end of the first is being saved
    node.saved.set()
    await first
    assert node.said[-1], "c has not answered"
    node.answers.set()
    await cast(Any, node._task)
    assert not node.said[-1]
