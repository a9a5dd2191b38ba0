"""Claims about removals in whole clusters, in virtual time, by seed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from peercached.directory.layout import DIGEST_BYTES
from peercached.peer.removals.calls import RemovalCalls
from peercached.peer.removals.catch_up import RemovalCatchUp
from peercached.peer.removals.driver import RemovalDriver
from peercached.peer.removals.member import ORPHANED_S
from peercached.peer.rpc.wire import address_message
from peercached.proto import peer_pb2 as pb
from peercached.removals.ledger import RemovalId
from peercached.removals.processes import NOT_KNOWN
from sim import removals
from sim.removals import KEYS, TTL_S, RemovalsCluster
from sim.seeds import slow, some


# 167: two parts have never met. 322, 2199: a part has a node that started there. 1086: a removal
# resumed from an earlier start ends. 1042: three nodes wait for each other in a cycle. 1258: a node
# that was cut off is not the last to end.
@pytest.mark.parametrize("seed", [*some(3, 100), 1042, 1258, *slow([167, 322, 1086, 2199])])
def test_no_read_finds_a_page_removed_before_it_began(seed: int) -> None:
    removals.removed(seed)


@contextmanager
def settled(seed: int, size: int) -> Iterator[RemovalsCluster]:
    with RemovalsCluster(seed, size) as cluster:
        cluster.until_agreed(20 * TTL_S)
        cluster.run(2.0)
        yield cluster


def test_claim_of_our_future_incarnation_costs_us_no_pages() -> None:
    with settled(1, 2) as cluster:
        ours, other = cluster.nodes["n0000"], cluster.nodes["n0001"]
        assert cluster.set(ours, KEYS[0])
        cluster.run(1.0)
        claim = pb.MissedRemovalsRequest(met=2**63)
        ours.process.do(
            lambda: cluster.loop.create_task(
                ours.daemon.removal_catch_up.answer(other.address, claim)
            )
        )
        cluster.run(1.0)
        assert list(ours.engine.pool) == [KEYS[0]]


def test_page_set_after_its_removal_survives_a_full_cluster_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The node that removed the page tells the other. The other must not tell it to remove the page
    again."""
    answer = RemovalCatchUp.answer

    async def late(self: RemovalCatchUp, caller: Any, request: Any) -> Any:
        if caller.node_id == "n0001":
            await asyncio.sleep(0.5)  # n0000 has been told by then
        return await answer(self, caller, request)

    with settled(1, 2) as cluster:
        cluster.crash("n0000")
        cluster.until_agreed(20 * TTL_S)
        cluster.remove(cluster.nodes["n0001"], KEYS[0])
        cluster.run(1.0)
        assert cluster.set(cluster.nodes["n0001"], KEYS[0])
        cluster.run(1.0)
        cluster.crash("n0001")
        monkeypatch.setattr(RemovalCatchUp, "answer", late)
        cluster.start("n0000")
        cluster.start("n0001")
        cluster.until_agreed(20 * TTL_S)
        cluster.run(2.0)
        assert list(cluster.nodes["n0001"].engine.pool) == [KEYS[0]]


def test_a_member_tells_of_missed_removals_that_it_knows_and_that_are_over() -> None:
    with settled(1, 2) as cluster:
        node, other = cluster.nodes["n0000"], cluster.nodes["n0001"].address
        ours = node.daemon
        process = ours.removals.processes.find(other.node_id, other.incarnation)
        assert process is not None
        answers = []
        id = RemovalId(other.incarnation, 1)

        async def ask() -> None:
            request = pb.MissedRemovalsRequest(last_settled=other.incarnation)
            answers.append(await ours.removal_catch_up.answer(other, request))

        async def carry_out() -> None:
            await ours.removals.carry_out(id, KEYS[0], (bytes(16), 1))

        async def end() -> None:
            ours.removals.over([id], {})

        def do(*works: Any) -> None:
            for work in works:
                node.process.do(partial(cluster.loop.create_task, work()))
                cluster.run(0.5)

        for process.missed_from in (0, 1, NOT_KNOWN):
            do(ask)
        assert [answer.known for answer in answers] == [False, True, False]

        for work in (carry_out, end):
            do(work)
            process.missed_from = process.missed_last = 1  # it may have paid meanwhile
            do(ask)
        under_way, over = answers[3:]
        assert [one.digests for one in under_way.running] == [KEYS[0]]
        assert (under_way.removed, over.removed[:DIGEST_BYTES]) == (b"", KEYS[0])
        assert not over.running


def test_a_debt_whose_removals_nobody_knows_costs_all_pages() -> None:
    """The younger node greets the older one, which has begun empty while the other was away."""
    with settled(1, 2) as cluster:
        older, younger = sorted(cluster.nodes.values(), key=lambda node: node.address.incarnation)
        assert cluster.set(younger, KEYS[0])
        cluster.remove(older, KEYS[1])
        cluster.run(1.0)
        process = older.daemon.removals.processes.find(younger.name, younger.address.incarnation)
        assert process is not None
        process.missed_from = process.missed_last = 1
        process.heard_upto, process.here = 0, False
        older.daemon.removals.processes.forget_all(1)
        process.here, process.was_away = True, True
        catch_up = younger.daemon.removal_catch_up
        greeted = next(iter(younger.daemon.placement.others))
        younger.process.do(partial(cluster.loop.create_task, catch_up._greet(greeted)))
        cluster.run(5.0)
        assert not process.owes and not younger.daemon.removals.owes
        assert not younger.engine.pool


def test_a_node_that_began_empty_is_not_enough_for_a_process_that_was_away() -> None:
    with settled(1, 2) as cluster:
        ours, other = cluster.nodes["n0000"], cluster.nodes["n0001"].address
        process = ours.daemon.removals.processes.find(other.node_id, other.incarnation)
        assert process is not None
        answers = []

        async def ask() -> None:
            request = pb.MissedRemovalsRequest(last_settled=other.incarnation)
            answers.append(await ours.daemon.removal_catch_up.answer(other, request))

        for process.is_unclear in (False, True):
            process.missed_from = process.missed_last = 1
            process.heard_upto = 0
            ours.process.do(partial(cluster.loop.create_task, ask()))
            cluster.run(0.1)
        assert [(answer.owes, answer.known) for answer in answers] == [(True, True), (True, False)]


def test_a_removal_that_an_earlier_start_knew_is_no_news() -> None:
    """Or one node after the other would say that members may have missed it."""
    with settled(1, 4) as cluster:
        cluster.remove(cluster.nodes["n0001"], KEYS[0])
        cluster.run(2.0)
        for name in ("n0001", "n0002"):
            cluster.crash(name)
            cluster.until_agreed(20 * TTL_S)
            cluster.start(name)
            cluster.until_agreed(20 * TTL_S)
        cluster.run(5.0)
        assert cluster.set(cluster.nodes["n0001"], KEYS[0])
        cluster.run(1.0)
        last = {name: node.engine.removals_last for name, node in cluster.nodes.items()}
        ours = cluster.nodes["n0000"].daemon.removals
        for process in ours.processes:  # as if it had joined just now, with an old journal
            process.missed_from = process.missed_last = 1
            process.heard_upto = 0
        cluster.run(5.0)
        assert not any(process.owes for process in ours.processes if process.here)
        assert last == {name: node.engine.removals_last for name, node in cluster.nodes.items()}
        assert list(cluster.nodes["n0001"].engine.pool) == [KEYS[0]], "it was set afterwards"


def test_claims_of_two_members_on_each_other_end_when_neither_has_any() -> None:
    with settled(1, 3) as cluster:
        ours = cluster.nodes["n0000"].daemon.removals
        b, c = (cluster.nodes[name].address for name in ("n0001", "n0002"))
        for by, owing in ((b, c), (c, b)):
            process = ours.processes.find(owing.node_id, owing.incarnation)
            assert process is not None
            ours.claimed(by, [process])
        assert ours.debts.must_tell(b) and ours.debts.must_tell(c)
        cluster.run(5.0)
        assert not (ours.debts.must_tell(b) or ours.debts.must_tell(c))


def test_a_debt_that_a_third_node_told_us_of_is_not_paid_without_the_creditor() -> None:
    with settled(1, 3) as cluster:
        debtor, third, creditor = (cluster.nodes[name] for name in ("n0000", "n0001", "n0002"))
        cluster.remove(creditor, KEYS[1])
        cluster.run(1.0)
        cluster.cut(["n0000"], ["n0002"])
        who = debtor.address
        process = creditor.daemon.removals.processes.find(who.node_id, who.incarnation)
        assert process is not None
        process.heard_upto, process.missed_from, process.missed_last = 0, 1, 1
        third.daemon.removals.claimed(creditor.address, [process])
        while not debtor.daemon.removals.owes:
            cluster.run(0.01)
        for _ in range(200):  # its call of the creditor fails meanwhile
            cluster.run(0.02)
            assert debtor.engine.paused
        cluster.net.cuts.clear()
        cluster.run(2 * TTL_S)
        assert not (debtor.engine.paused or debtor.daemon.removals.owes)
        assert not (process.owes or third.daemon.removals.debts.has_debt(who))


def test_nothing_is_known_while_pages_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """The journal is gone before the node has forgotten which processes it would tell what."""
    with settled(1, 2) as cluster:
        ours, other = cluster.nodes["n0000"], cluster.nodes["n0001"].address
        catch_up = ours.daemon.removal_catch_up
        answers = []

        async def ask() -> None:
            request = pb.MissedRemovalsRequest(last_settled=other.incarnation, starts=True)
            answers.append(await catch_up.answer(other, request))

        def drop_all() -> asyncio.Future[None]:
            dropped = cluster.loop.create_future()
            cluster.loop.call_later(1.0, dropped.set_result, None)
            return dropped

        monkeypatch.setattr(ours.engine, "drop_all", drop_all)
        for work in (ask, catch_up._begin_empty, ask):
            ours.process.do(partial(cluster.loop.create_task, work()))
            cluster.run(0.5)
        assert [answer.known for answer in answers] == [True, False]


def test_journal_positions_of_other_members_are_saved() -> None:
    with settled(1, 3) as cluster:
        cluster.remove(cluster.nodes["n0000"], KEYS[0])
        cluster.run(2.0)
        for disk in cluster.disks.values():
            assert [process.reached for process in disk.remembered.processes] == [1, 1]


def test_lost_end_of_removal_message_is_sent_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    call = RemovalCalls.call
    lost: list[str] = []

    async def one_is_lost(self: RemovalCalls, node: Any, method: str, request: Any) -> Any:
        if method == "EndRemovals" and not lost:
            lost.append(node.address.node_id)
            return "it was lost"
        return await call(self, node, method, request)

    monkeypatch.setattr(RemovalCalls, "call", one_is_lost)
    with settled(1, 3) as cluster:
        cluster.remove(cluster.nodes["n0000"], KEYS[0])
        cluster.run(0.2 * ORPHANED_S)
        assert lost and cluster.history.sure == 1
        assert [name for name, node in cluster.nodes.items() if node.engine.removing] == []


def test_member_asks_the_driver_about_an_orphaned_removal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tell_over = RemovalDriver._tell_over

    async def not_to_the_last(self: RemovalDriver, node: Any, *what: Any) -> None:
        if node.address.node_id != "n0002":
            await tell_over(self, node, *what)

    monkeypatch.setattr(RemovalDriver, "_tell_over", not_to_the_last)
    with settled(1, 3) as cluster:
        cluster.remove(cluster.nodes["n0000"], KEYS[0])
        cluster.run(0.5 * ORPHANED_S)
        assert cluster.nodes["n0002"].engine.removing
        cluster.run(ORPHANED_S)
        assert not cluster.nodes["n0002"].engine.removing


def test_removal_ends_when_a_lost_process_has_restarted() -> None:
    with settled(1, 3) as cluster:
        cluster.leave("n0000")
        cluster.run(2 * TTL_S)
        # n0000 never meets this incarnation.
        cluster.crash("n0001")
        cluster.start("n0001")
        cluster.until_agreed(20 * TTL_S)
        cluster.crash("n0001", machine=True)
        cluster.until_agreed(20 * TTL_S)
        cluster.start("n0000")
        cluster.until_agreed(20 * TTL_S)
        ours = cluster.nodes["n0000"]
        cluster.remove(ours, KEYS[0])
        cluster.run(TTL_S)
        assert ours.removals_status()["missing"].keys() == {"n0001"}
        cluster.leave("n0002")
        cluster.run(2 * TTL_S)
        cluster.start("n0001")
        cluster.until_agreed(20 * TTL_S)
        cluster.run(4 * TTL_S)
        assert ours.removals_status()["unsure"] == 0


def test_removal_does_not_wait_for_its_drivers_earlier_incarnation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A member that has not met the new incarnation yet reports the earlier one as silent."""
    call = RemovalCalls.call
    with RemovalsCluster(1, 3) as cluster:
        cluster.until_agreed(20 * TTL_S)
        before = cluster.nodes["n0000"].address
        cluster.crash("n0000")
        cluster.start("n0000")
        cluster.until_agreed(20 * TTL_S)

        async def as_before(self: RemovalCalls, node: Any, method: str, request: Any) -> Any:
            reply = await call(self, node, method, request)
            if method == "Remove":
                reply.silent.append(address_message(before))
            return reply

        monkeypatch.setattr(RemovalCalls, "call", as_before)
        cluster.remove(cluster.nodes["n0000"], KEYS[0])
        cluster.run(1.0)
        assert cluster.history.sure == 1
