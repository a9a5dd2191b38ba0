"""Views computed from the keys in etcd. A fake etcd is a list of events, which each node receives
late."""

import random
from dataclasses import replace
from typing import Any

import pytest

from peercached.membership import Member, NodeAddress, State, Timing, View
from peercached.membership.etcd_view import EtcdView, Stamp
from peercached.membership.view import MARK_BITS

TIMING = Timing(heartbeat_interval_s=1.0, member_ttl_s=5.0)


def member(node_id: str, incarnation: int = 1) -> Member:
    return Member(NodeAddress(node_id, incarnation, "host", 1, 2))


class Node:
    """Works like peer/membership/etcd/membership.py. It has received events up to `heard`."""

    def __init__(self, etcd: "Etcd", node_id: str, incarnation: int = 1) -> None:
        self.etcd = etcd
        self.member = member(node_id, incarnation)
        self.state = EtcdView(self.member.address, TIMING)
        self.views = [self.state.view]
        self.heard = 0
        self.connected = False

    def connect(self) -> None:
        self.connected = True
        self.heard = len(self.etcd.events)
        self.state.reset(self.etcd.members.values(), self.etcd.stamp, self.etcd.now)
        if self.etcd.members.get(self.member.node_id) != self.member:
            self.etcd.put(self.member)
        self._took(self.state.take(self.etcd.now))

    def hear(self, events_max: int) -> None:
        for kind, what in self.etcd.events[self.heard :][:events_max]:
            self.heard += 1
            if kind == "stamp":
                self.state.stamped(what, self.etcd.now)
                self._took(self.state.take(self.etcd.now))
            elif kind == "put":
                self.state.put(what, self.etcd.now)
            else:
                self.state.delete(what, self.etcd.now)

    def act(self) -> None:
        now = self.etcd.now
        if self.state.due_at(now) <= now:
            self._took(self.state.take(self.etcd.now))
            if self.state.due_at(now) <= now:
                self.etcd.put_stamp(self.state.next_stamp(now), self.heard)

    def _took(self, view: View | None) -> None:
        if view is not None:
            assert view.number > self.views[-1].number
            assert view.is_what_it_says
            assert view.has(self.member.address)
            self.views.append(view)

    @property
    def names(self) -> str:
        return "".join(m.node_id for m in self.state.view.members)


class Etcd:
    def __init__(self) -> None:
        self.now = 100.0
        self.nodes: list[Node] = []
        self.stamps_put = 0
        self.stamps_tried = 0
        self.begin_anew()

    def begin_anew(self, members: list[Member] | None = None, stamp: Stamp | None = None) -> None:
        """Starts with an empty store, or restores a backup."""
        self.members = {m.node_id: m for m in members or []}
        self.stamp = stamp or Stamp()
        self.revision = 1
        self.events: list[tuple[str, Any]] = []
        for node in self.nodes:
            node.connected = False

    def put(self, what: Member) -> None:
        self.revision += 1
        self.members[what.node_id] = what
        self.events.append(("put", what))

    def delete(self, node_id: str) -> None:
        self.revision += 1
        del self.members[node_id]
        self.events.append(("delete", node_id))

    def put_stamp(self, stamp: Stamp, heard: int) -> None:
        self.stamps_tried += 1
        if all(kind == "delete" for kind, _ in self.events[heard:]):
            self.revision += 1
            self.stamps_put += 1
            self.stamp = Stamp.of(stamp.value)
            self.events.append(("stamp", self.stamp))

    def node(self, node_id: str, incarnation: int = 1) -> Node:
        node = Node(self, node_id, incarnation)
        self.nodes.append(node)
        return node

    def cluster(self, names: str) -> list[Node]:
        nodes = [self.node(name) for name in names]
        for node in nodes:
            node.connect()
        self.run(5.0)
        assert {node.names for node in nodes} == {names}
        return nodes

    def run(self, seconds: float, rng: random.Random | None = None) -> None:
        until = self.now + seconds
        while self.now < until:
            self.now += 0.01
            for node in rng.sample(self.nodes, len(self.nodes)) if rng else self.nodes:
                if node.connected:
                    node.hear(rng.randrange(4) if rng else 1000)
                    node.act()


def agreed(nodes: list[Node]) -> set[int]:
    return {node.state.view.number for node in nodes}


def test_nodes_that_come_together_have_one_view_and_few_are_made() -> None:
    etcd = Etcd()
    nodes = etcd.cluster("abcdef")
    assert len(agreed(nodes)) == 1
    assert etcd.stamps_put <= 2
    assert nodes[0].state.view.counter == etcd.stamps_put


def test_wiped_etcd_gets_back_the_current_view_without_new_views() -> None:
    etcd = Etcd()
    nodes = etcd.cluster("abcdef")
    before, views = agreed(nodes), [len(node.views) for node in nodes]
    tried = etcd.stamps_tried
    etcd.begin_anew()
    for node in nodes:
        etcd.run(0.3)  # spread out, so that several views could be made in between
        node.connect()
        assert node.state.missing(etcd.now) or node is nodes[-1]
    etcd.run(1.0)
    assert agreed(nodes) == before
    assert [len(node.views) for node in nodes] == views  # no ring has changed
    assert not any(node.state.missing(etcd.now) for node in nodes)
    assert {etcd.stamp.number} == before
    assert etcd.stamps_tried == tried + 1


def test_node_missing_after_a_wipe_is_out_after_the_lease_time() -> None:
    etcd = Etcd()
    nodes = etcd.cluster("abcdef")
    before = nodes[0].state.view.counter
    etcd.begin_anew()
    *back, _ = nodes
    for node in back:
        node.connect()
    etcd.run(TIMING.lease_over_s - 0.1)
    assert {node.names for node in back} == {"abcdef"}
    assert back[0].state.missing(etcd.now) == ["f"]
    etcd.run(1.0)
    assert {node.names for node in back} == {"abcde"}
    assert len(agreed(back)) == 1
    assert back[0].state.view.counter == before + 1


def test_a_backup_with_older_starts_and_members_long_gone() -> None:
    etcd = Etcd()
    nodes = etcd.cluster("abc")
    for node in nodes:  # views have advanced since the backup
        node.state.view = View.numbered(105, node.state.view)
        node.views.append(node.state.view)
    etcd.begin_anew([member("a"), member("b", 0), member("x")], Stamp(50 << MARK_BITS | 7, "a/1"))
    nodes[0].connect()
    etcd.run(1.0)
    assert nodes[0].state.missing(etcd.now) == ["b", "c"]
    for node in nodes[1:]:
        node.connect()
    etcd.run(1.0)
    etcd.delete("x")  # its lease expires
    etcd.run(TIMING.lease_over_s)
    assert {node.names for node in nodes} == {"abc"}
    assert len(agreed(nodes)) == 1
    assert nodes[0].state.view.counter > 105


def test_newcomer_in_a_wiped_etcd_shrinks_no_view() -> None:
    etcd = Etcd()
    nodes = etcd.cluster("bcdef")
    etcd.begin_anew()
    late = etcd.node("a")
    late.connect()
    for node in nodes:
        etcd.run(0.5)
        node.connect()
        assert all(other.names == "bcdef" for other in nodes)
    etcd.run(3.0)
    assert {node.names for node in etcd.nodes} == {"abcdef"}
    assert len(agreed(etcd.nodes)) == 1


def test_a_lease_that_is_lost_and_put_again_makes_no_view() -> None:
    etcd = Etcd()
    nodes = etcd.cluster("abc")
    before, stamps = agreed(nodes), etcd.stamps_put
    for node in nodes:
        etcd.delete(node.member.node_id)
        etcd.run(TIMING.heartbeat_interval_s - 0.1)
        etcd.put(node.member)
        etcd.run(0.05)
    etcd.run(2.0)
    assert (agreed(nodes), etcd.stamps_put) == (before, stamps)


def test_leaving_node_is_out_at_once_and_vanished_node_after_a_heartbeat() -> None:
    etcd = Etcd()
    nodes = etcd.cluster("abcd")
    etcd.put(replace(nodes[3].member, sequence=1, state=State.LEAVING))
    etcd.delete("d")
    etcd.run(0.2)
    assert nodes[0].names == "abc"
    etcd.delete("c")
    etcd.run(TIMING.heartbeat_interval_s - 0.1)
    assert nodes[0].names == "abc"
    etcd.delete("b")  # so the grace time of c ends as well
    etcd.run(0.3)
    assert nodes[0].names == "a"


def test_a_hiccup_of_etcd_makes_no_view() -> None:
    etcd = Etcd()
    nodes = [etcd.node(f"n{i:03}") for i in range(100)]
    for node in nodes:
        node.connect()
    etcd.run(5.0)
    before, stamps, revision = agreed(nodes), etcd.stamps_put, etcd.revision
    for node in nodes:
        node.connect()
    etcd.run(5.0)
    assert (agreed(nodes), etcd.stamps_put, etcd.revision) == (before, stamps, revision)
    assert len(before) == 1


def test_joins_that_come_together_are_one_view() -> None:
    etcd = Etcd()
    nodes = etcd.cluster("abc")
    before = etcd.stamps_put
    for i in range(20):
        etcd.node(f"n{i:02}").connect()
        etcd.run(0.002)
    etcd.run(3.0)
    assert len(agreed(etcd.nodes)) == 1
    assert len(nodes[0].state.view.members) == 23
    assert etcd.stamps_put - before <= 4


def test_the_next_in_order_makes_the_view_when_the_first_hangs() -> None:
    etcd = Etcd()
    nodes = etcd.cluster("abc")
    nodes[0].connected = False  # it hangs, and its lease is still valid
    etcd.delete("c")
    etcd.run(2.0)
    assert nodes[1].names == "ab"


def test_disagreeing_readers_do_not_overwrite_the_stamp_forever() -> None:
    etcd = Etcd()
    nodes = etcd.cluster("ab")
    nodes[1].state.put(member("x"), etcd.now)  # only this node can read the key
    before = etcd.stamps_put
    etcd.run(60.0)
    assert etcd.stamps_put - before < 25


def test_missing_or_malformed_stamp_is_written_again() -> None:
    for value in (
        b"",
        b"x",
        b"1 2 a/1",
        b"-1 00000000 a",
        b"99999999999 00000000 a",
        b"1 00000000 ",
    ):
        assert Stamp.of(value) == Stamp()
    etcd = Etcd()
    nodes = etcd.cluster("ab")
    before = agreed(nodes)
    etcd.stamp = Stamp()
    etcd.events.append(("stamp", Stamp()))
    etcd.run(1.0)
    assert agreed(nodes) == before == {etcd.stamp.number}


def test_late_node_writes_no_outdated_stamp() -> None:
    etcd = Etcd()
    nodes = etcd.cluster("abc")
    before, stamps = agreed(nodes), etcd.stamps_put
    etcd.begin_anew()
    for node in nodes:
        node.connect()
    # When its wait ends, this node has received only its own key.
    nodes[0].connected = False
    nodes[0].hear(1)
    etcd.run(TIMING.lease_over_s + 1.0)
    nodes[0].act()
    nodes[0].connected = True
    etcd.run(1.0)
    assert agreed(nodes) == before == {etcd.stamp.number}
    assert etcd.stamps_put == stamps + 1


def gone_on_without(etcd: Etcd, names: str) -> list[bool]:
    """The nodes lose their leases while disconnected. For each, returns whether it finds itself out
    of the view when it reads again."""
    out = [node for node in etcd.nodes if node.member.node_id in names]
    for node in out:
        node.connected = False
        etcd.delete(node.member.node_id)
    etcd.run(2.0)
    for node in out:
        node.state.reset(etcd.members.values(), etcd.stamp, etcd.now)
    return [node.state.is_without_us for node in out]


def test_node_that_lost_its_lease_is_out_of_the_view() -> None:
    etcd = Etcd()
    etcd.cluster("abcde")
    assert gone_on_without(etcd, "b") == [True]


def test_loss_of_most_leases_puts_no_node_out() -> None:
    etcd = Etcd()
    etcd.cluster("abcde")
    assert gone_on_without(etcd, "abcd") == [False] * 4


def test_loss_of_all_leases_puts_no_node_out() -> None:
    etcd = Etcd()
    etcd.cluster("abcde")
    assert gone_on_without(etcd, "abcde") == [False] * 5


@pytest.mark.parametrize("number", [0, 50 << MARK_BITS | 7, 500 << MARK_BITS | 7])
def test_etcd_restored_without_a_node_does_not_put_it_out(number: int) -> None:
    etcd = Etcd()
    nodes = etcd.cluster("abc")
    etcd.begin_anew([member("a"), member("b")], Stamp(number, "other/1" if number else ""))
    etcd.stamp = Stamp(View.numbered(number >> MARK_BITS, View.of(0, etcd.members.values())).number)
    nodes[2].state.reset(etcd.members.values(), etcd.stamp, etcd.now)
    assert not nodes[2].state.is_without_us


def test_cold_start_adopts_the_remembered_view_with_its_new_incarnation() -> None:
    etcd = Etcd()
    nodes = etcd.cluster("abc")
    again = etcd.node("c", incarnation=2)
    cold = again.state.begin_cold(nodes[0].state.view)
    again.views = [cold]
    assert again.names == "abc"
    assert cold.has(again.member.address)
    assert cold.is_what_it_says
    nodes.pop()
    etcd.nodes.remove(etcd.nodes[2])
    again.connect()
    etcd.run(1.0)
    assert len(agreed(etcd.nodes)) == 1
    assert nodes[0].state.view.has(again.member.address)


@pytest.mark.parametrize("seed", range(30))
def test_nodes_converge_on_one_view_after_random_faults(seed: int) -> None:
    rng = random.Random(seed)
    etcd = Etcd()
    for name in "abcde":
        etcd.node(name).connect()
    backup: tuple[list[Member], Stamp] = ([], Stamp())
    for _ in range(40):
        etcd.run(rng.uniform(0.0, 1.0), rng)
        node = rng.choice(etcd.nodes)
        match rng.randrange(7):
            case 0:
                etcd.begin_anew()
            case 1:
                etcd.begin_anew(*backup)
            case 2:
                backup = (list(etcd.members.values()), etcd.stamp)
            case 3:
                node.connected = False
            case 4 if node.member.node_id in etcd.members:
                etcd.delete(node.member.node_id)
                node.connected = False
            case 5:
                etcd.nodes.remove(node)
                etcd.node(node.member.node_id, node.member.address.incarnation + 1)
            case _:
                pass
        for other in etcd.nodes:
            if not other.connected and rng.random() < 0.5:
                other.connect()
    for node in etcd.nodes:
        node.connect()
    etcd.run(TIMING.lease_over_s + 60.0, rng)
    assert {node.names for node in etcd.nodes} == {"abcde"}
    assert len(agreed(etcd.nodes)) == 1
    stamps = etcd.stamps_put
    etcd.run(30.0, rng)
    assert etcd.stamps_put == stamps
