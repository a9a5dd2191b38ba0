"""Holders' logs and their followers: the protocol of docs/directory.md, each step of it alone.

A *holder* appends what changes in its pool to its log. A *follower* has a table of the holder's
records and a position in that log. Messages get lost, doubled, late and out of order: the network
is the set of all messages ever sent, and any of them may arrive at any time, also again.

There are two followers and two views. Follower 0 owns all digests by view 1, follower 1 by view 2.
Holder 0 is in both, holder 1 joins in view 2. A holder's restart is a new holder, so it needs no
step of its own. Time is not counted: a lease may end at any time at its follower, and at its holder
any time after that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

HOLDERS = FOLLOWERS = (0, 1)
MEMBERS = {1: (0,), 2: (0, 1)}  # holders by view


def owner(view: int) -> int:
    return view - 1


class Rules(NamedTuple):
    """All that the protocol promises rests on. The tests take each away in turn."""

    a_push_fits_the_position: bool = True
    a_scan_has_the_position_before_it: bool = True
    a_lease_comes_with_the_end_of_the_log: bool = True
    a_lease_counts_in_its_view_alone: bool = True
    a_set_waits_for_leases_of_other_views: bool = True
    a_removal_waits_for_all_leases: bool = True
    a_new_holder_waits_until_all_have_asked: bool = True
    a_question_names_the_lease: bool = True
    an_answer_counts_from_its_question: bool = True
    a_lease_is_waited_for_to_its_end: bool = True
    a_follower_that_loses_records_loses_its_lease: bool = True


class Lease(NamedTuple):
    number: int  # of the question that the holder has answered
    view: int  # the holder's


class Entry(NamedTuple):
    """A holder's knowledge of a follower."""

    asked: int = 0  # number of its newest question
    answered: bool = True
    position: int = 0  # that it is known to have
    leases: frozenset[Lease] = frozenset()  # that it may have


class Scan(NamedTuple):
    follower: int
    position: int
    left: tuple[int, ...]
    rows: frozenset[int] = frozenset()


class Holder(NamedTuple):
    """A record is a number, `-record` its withdrawal. No record comes twice: a page that is set
    again has another generation."""

    view: int = 1
    log: tuple[int, ...] = ()
    kept_from: int = 1  # a position: how many changes came before, plus one
    followers: tuple[Entry, Entry] = (Entry(), Entry())
    scan: Scan | None = None
    waits: frozenset[int] = frozenset()  # changes that a caller waits for
    told: frozenset[int] = frozenset()  # changes whose caller got the answer that all know

    @property
    def end(self) -> int:
        return len(self.log) + 1


class Feed(NamedTuple):
    """A follower's end: its table of one holder's records."""

    position: int = 0  # 0: none
    table: frozenset[int] = frozenset()
    lease: Lease | None = None
    asked: int = 0
    valid_from: int = 1  # answers to earlier questions come too late to count


class Follower(NamedTuple):
    view: int = 1
    feeds: tuple[Feed, Feed] = (Feed(), Feed())


class Question(NamedTuple):
    holder: int
    follower: int
    number: int
    position: int
    held: Lease | None


class Answer(NamedTuple):
    holder: int
    follower: int
    number: int
    start: int
    end: int
    view: int
    rows: frozenset[int] | None = None  # of a scan: they replace the table, at position `start`


class Push(NamedTuple):
    holder: int
    follower: int
    start: int
    end: int


class Taken(NamedTuple):
    holder: int
    follower: int
    position: int


Message = Question | Answer | Push | Taken


class World(NamedTuple):
    holders: tuple[Holder, ...]
    followers: tuple[Follower, ...]
    net: frozenset[Message]
    left: tuple[tuple[str, int], ...]  # what may still happen, and how often

    def may(self, what: str) -> bool:
        return dict(self.left).get(what, 0) > 0

    def spent(self, what: str) -> World:
        left = tuple((name, count - (name == what)) for name, count in self.left)
        return self._replace(left=left)


def begin(**left: int) -> World:
    """All nodes are in view 1, and both followers have the empty log of holder 0. `left`: how often
    `set0`, `set1` (at that holder), `remove`, `ask`, `push`, `lose`, `expire`, `trim` and `view`
    (one node gets view 2) may happen."""
    lease = Lease(1, 1)
    entry = Entry(1, True, 1, frozenset({lease}))
    feed = Feed(1, frozenset(), lease, 1, 2)
    return World(
        (Holder(followers=(entry, entry)), Holder(view=2)),
        (Follower(feeds=(feed, Feed())),) * 2,
        frozenset(),
        tuple(sorted(left.items())),
    )


# --- a holder


def records(log: Iterable[int]) -> frozenset[int]:
    """The records that stand after these changes."""
    changes = set(log)
    return frozenset(r for r in changes if r > 0 and -r not in changes)


def may_have_leases(entry: Entry, held: Lease | None) -> Entry:
    return entry._replace(leases=frozenset(() if held is None else (held,)))


def is_known(h: Holder, change: int, rules: Rules) -> bool:
    """Whether everybody knows of that change who must, before its caller gets the answer."""
    is_removal = h.log[change - 1] < 0
    for number, entry in enumerate(h.followers):
        if not entry.asked and not is_removal and rules.a_new_holder_waits_until_all_have_asked:
            return False
        everybody = is_removal and rules.a_removal_waits_for_all_leases
        some = rules.a_set_waits_for_leases_of_other_views
        counts = any(
            everybody or number == owner(h.view) or (some and lease.view != h.view)
            for lease in entry.leases
        )
        if counts and entry.position <= change:
            return False
    return True


def asked(h: Holder, q: Question, rules: Rules) -> Holder:
    entry = h.followers[q.follower]
    if q.number <= entry.asked:
        return h
    position = max(q.position, entry.position) if q.position else 0
    entry = entry._replace(asked=q.number, answered=False, position=position)
    if rules.a_question_names_the_lease:
        entry = may_have_leases(entry, q.held)
    scan = None if h.scan is not None and h.scan.follower == q.follower else h.scan
    return h._replace(followers=put(h.followers, q.follower, entry), scan=scan)


def answered(w: World, number: int, follower: int, rules: Rules) -> Iterator[tuple[str, World]]:
    """The holder goes on with that follower's question."""
    h = w.holders[number]
    entry = h.followers[follower]
    if entry.answered:
        return
    start, end, rows = entry.position, h.end, None
    if entry.position < h.kept_from:
        scan = h.scan
        if scan is None or scan.position < h.kept_from:
            # It may see records that come while it runs, or not.
            coming = range(10 * number + 1, 10 * number + 4)
            scan = Scan(follower, h.end, tuple(coming))
            yield "begins a scan", with_holder(w, number, h._replace(scan=scan))
            return
        if scan.follower != follower:
            return
        if scan.left:
            record, *left = scan.left
            rows = scan.rows | ({record} & records(h.log))
            scan = scan._replace(left=tuple(left), rows=rows)
            yield f"scans {record}", with_holder(w, number, h._replace(scan=scan))
            return
        start = scan.position if rules.a_scan_has_the_position_before_it else h.end
        end = h.end if rules.a_lease_comes_with_the_end_of_the_log else start
        h, rows = h._replace(scan=None), scan.rows
    lease = Lease(entry.asked, h.view)
    leases = entry.leases if rules.a_question_names_the_lease else frozenset[Lease]()
    entry = entry._replace(answered=True, leases=leases | {lease})
    w = with_holder(w, number, h._replace(followers=put(h.followers, follower, entry)))
    yield "answers", send(w, Answer(number, follower, entry.asked, start, end, h.view, rows))


# --- a follower


def took(feed: Feed, a: Answer, log: tuple[int, ...], rules: Rules) -> Feed:
    is_late = a.number < feed.valid_from and rules.an_answer_counts_from_its_question
    if a.number != feed.asked or is_late:
        return feed
    if a.rows is not None:
        feed = feed._replace(position=a.start, table=a.rows)
    elif a.start > feed.position:
        return feed
    feed = applied(feed, a.end, log)
    return feed._replace(lease=Lease(a.number, a.view), valid_from=a.number + 1)


def pushed(feed: Feed, p: Push, log: tuple[int, ...], rules: Rules) -> Feed:
    if feed.position == 0:
        return feed
    if rules.a_push_fits_the_position:
        return applied(feed, p.end, log) if p.start <= feed.position else feed
    table = feed.table
    for change in log[p.start - 1 : p.end - 1]:
        table = table | {change} if change > 0 else table - {-change}
    return feed._replace(position=max(feed.position, p.end), table=table)


def applied(feed: Feed, end: int, log: tuple[int, ...]) -> Feed:
    """Takes the changes from its position on, if there are any."""
    table = feed.table
    for change in log[feed.position - 1 : max(end, feed.position) - 1]:
        table = table | {change} if change > 0 else table - {-change}
    return feed._replace(position=max(end, feed.position), table=table)


def says_final(f: Follower, number: int, rules: Rules) -> bool:
    """Whether its "not here" is final for readers in its view."""
    return number == owner(f.view) and all(
        (lease := f.feeds[h].lease) is not None
        and (lease.view == f.view or not rules.a_lease_counts_in_its_view_alone)
        for h in MEMBERS[f.view]
    )


# --- all that may happen


def steps(w: World, rules: Rules) -> Iterator[tuple[str, World]]:
    for number in HOLDERS:
        for text, after in holder_steps(w, number, rules):
            yield f"holder {number} {text}", after
    for number in FOLLOWERS:
        for text, after in follower_steps(w, number, rules):
            yield f"follower {number} {text}", after
    for message in w.net:
        after = arrived(w, message, rules)
        if after != w:
            yield f"{message} arrives", after


def holder_steps(w: World, number: int, rules: Rules) -> Iterator[tuple[str, World]]:
    h = w.holders[number]
    if h.view == 1 and w.may("view"):
        yield "gets view 2", with_holder(w.spent("view"), number, h._replace(view=2))
    if w.may(f"set{number}"):
        record = 10 * number + 1 + sum(change > 0 for change in h.log)
        yield f"sets {record}", with_holder(w.spent(f"set{number}"), number, appended(h, record))
    if w.may("remove"):
        for record in records(h.log):
            after = with_holder(w.spent("remove"), number, appended(h, -record))
            yield f"removes {record}", after
    for change in h.waits:
        if is_known(h, change, rules):
            known = h._replace(waits=h.waits - {change}, told=h.told | {change})
            yield f"says that all know change {change}", with_holder(w, number, known)
    if w.may("trim") and h.kept_from < h.end:
        yield "trims", with_holder(w.spent("trim"), number, h._replace(kept_from=h.end))
    for follower, entry in enumerate(h.followers):
        for text, after in answered(w, number, follower, rules):
            yield f"{text} for follower {follower}", after
        if w.may("push") and h.kept_from <= entry.position < h.end:
            push = Push(number, follower, entry.position, h.end)
            yield f"pushes to follower {follower}", send(w.spent("push"), push)
        feed = w.followers[follower].feeds[number]
        for lease in entry.leases:
            is_over = lease != feed.lease and lease.number < feed.valid_from
            if is_over or not rules.a_lease_is_waited_for_to_its_end:
                rest = entry._replace(leases=entry.leases - {lease})
                followers = put(h.followers, follower, rest)
                after = with_holder(w, number, h._replace(followers=followers))
                yield f"waits no more for follower {follower}", after


def appended(h: Holder, change: int) -> Holder:
    return h._replace(log=(*h.log, change), waits=h.waits | {h.end})


def follower_steps(w: World, number: int, rules: Rules) -> Iterator[tuple[str, World]]:
    f = w.followers[number]
    if f.view == 1 and w.may("view"):
        after = w.spent("view")
        f2 = f._replace(view=2)
        yield "gets view 2", after._replace(followers=put(w.followers, number, f2))
    for holder in MEMBERS[f.view]:
        feed = f.feeds[holder]
        if w.may("ask"):
            feed = feed._replace(asked=feed.asked + 1)
            question = Question(holder, number, feed.asked, feed.position, feed.lease)
            after = send(with_feed(w.spent("ask"), number, holder, feed), question)
            yield f"asks holder {holder}", after
        over = f.feeds[holder]
        over = over._replace(valid_from=over.asked + 1)
        if w.may("expire") and over.lease is not None:
            after = with_feed(w.spent("expire"), number, holder, over._replace(lease=None))
            yield f"has a lease of holder {holder} no more", after
        if w.may("lose") and over.position:
            keeps = not rules.a_follower_that_loses_records_loses_its_lease
            lost = over._replace(position=0, table=frozenset(), lease=over.lease if keeps else None)
            yield (
                f"loses records of holder {holder}",
                with_feed(w.spent("lose"), number, holder, lost),
            )


def arrived(w: World, message: Message, rules: Rules) -> World:
    h, feed = w.holders[message.holder], w.followers[message.follower].feeds[message.holder]
    match message:
        case Question():
            return with_holder(w, message.holder, asked(h, message, rules))
        case Answer():
            feed = took(feed, message, h.log, rules)
            return with_feed(w, message.follower, message.holder, feed)
        case Push():
            feed = pushed(feed, message, h.log, rules)
            w = with_feed(w, message.follower, message.holder, feed)
            return send(w, Taken(message.holder, message.follower, feed.position))
        case Taken():
            entry = h.followers[message.follower]
            entry = entry._replace(position=max(entry.position, message.position))
            followers = put(h.followers, message.follower, entry)
            return with_holder(w, message.holder, h._replace(followers=followers))


# --- the judge


def wrong(w: World, rules: Rules) -> Iterator[str]:
    for number, f in enumerate(w.followers):
        final = says_final(f, number, rules)
        for holder, h in enumerate(w.holders):
            feed = f.feeds[holder]
            if feed.position and feed.table != records(h.log[: feed.position - 1]):
                yield "a table that is not the log up to its position"
            for change in h.told:
                record = h.log[change - 1]
                is_set = record > 0 and -record not in h.log
                if final and is_set and record not in feed.table:
                    yield "a final `not here` of a page that was set"
                if feed.lease is not None and -record in feed.table:
                    yield "a removed page is found"


def healed(w: World, rules: Rules) -> World:
    """The end, once all messages arrive: everybody gets view 2, and asks twice."""
    holders = tuple(h._replace(view=2, scan=None) for h in w.holders)
    followers = tuple(f._replace(view=2) for f in w.followers)
    w = w._replace(holders=holders, followers=followers, net=frozenset())
    for _ in range(2):
        for holder in HOLDERS:
            for follower in FOLLOWERS:
                feed = w.followers[follower].feeds[holder]
                feed = feed._replace(asked=feed.asked + 1)
                q = Question(holder, follower, feed.asked, feed.position, feed.lease)
                w = arrived(with_feed(w, follower, holder, feed), q, rules)
                while not w.holders[holder].followers[follower].answered:
                    ((_, w),) = answered(w, holder, follower, rules)
                (answer,) = (m for m in w.net if isinstance(m, Answer))
                w = arrived(w, answer, rules)._replace(net=frozenset())
    return w


# --- values that never change


def put(values: tuple[Any, ...], place: int, value: Any) -> tuple[Any, ...]:
    return (*values[:place], value, *values[place + 1 :])


def with_holder(w: World, number: int, holder: Holder) -> World:
    return w._replace(holders=put(w.holders, number, holder))


def with_feed(w: World, follower: int, holder: int, feed: Feed) -> World:
    f = w.followers[follower]
    f = f._replace(feeds=put(f.feeds, holder, feed))
    return w._replace(followers=put(w.followers, follower, f))


def send(w: World, message: Message) -> World:
    return w._replace(net=w.net | {message})
