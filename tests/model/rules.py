"""The rule of docs/consistency.md: a process is with us, or it owes.
Functions have the order and the names of peercached/removals/processes.py,
peer/removals/catch_up.py and driver.py."""

from __future__ import annotations

from typing import NamedTuple

from model.world import (
    HIDDEN,
    NOT_KNOWN,
    SERVED,
    STOPPED,
    Node,
    Process,
    Rules,
    View,
    World,
    carry_out,
    contact,
)

YES, NO, NEVER = range(3)  # whether removals wait for a process that is out of view


class Entry(NamedTuple):
    at: int
    waits: int = YES
    missed_from: int = 0  # position in our journal; 0: it is with us
    reached: int = 0
    missed_last: int = 0
    heard: int = 0  # position up to which it has heard of our removals


class Reply(NamedTuple):
    vouches: bool
    known: bool
    owing: bool  # the asking process owes there
    removed: tuple[int, ...]
    running: int
    companions: frozenset[int]
    last_settled: int
    upto: int
    processes: tuple[tuple[Process, int], ...]  # that owe there and may come back
    up_to_date: View  # members that have missed nothing of what is known there


# --- processes


def begin(w: World) -> None:
    for node in w.nodes:
        node.table = {
            process: Entry(process[0]) for process in node.view if process != node.process
        }


def see(w: World, node: Node, view: View) -> None:
    for process in sorted(view - {node.process}):
        at = w.nodes[process[0]].at
        earlier = sorted(other for other in node.table if other[0] == process[0])
        found = node.table.get(process)
        if found is None:
            node.table[process] = Entry(at)
            if earlier:
                last = node.table[earlier[-1]]
                node.table[process] = Entry(
                    at, missed_from=last.missed_from, missed_last=last.missed_last
                )
            elif node.journal.last > node.began_at and not (
                node.running and node.run_from <= node.began_at + 1
            ):  # it may have run in another part until now
                owe(node, process, node.began_at + 1, node.journal.last)
            if node.running:
                node.away |= {process}
        elif process not in node.view:
            node.table[process] = found._replace(waits=YES)
        for other in [*node.table] if process not in node.view else earlier:
            is_earlier = other in earlier or (other not in view and other[1] < process[1])
            if other != process and is_earlier and node.table[other].at == at:
                node.table[other] = node.table[other]._replace(waits=NO)
                if other not in earlier and (running := w.find(other)) is not None:
                    running.excused_by |= {node.name}  # as in World.looks_ended()
    for process, entry in list(node.table.items()):
        if process in node.view and process not in view:
            is_over = entry.waits == NO or process in node.goodbyes
            node.table[process] = entry._replace(waits=NO if is_over else YES)
    if node.running:
        node.away |= node.table.keys() - view
    take_over_claims(node, view)


def take_over_claims(node: Node, view: View) -> None:
    """Members that are gone tell nobody any more. A node that starts meets them first."""
    if not (node.sure or node.was_told):
        return
    for claim in sorted(node.claims):
        by, process, at = claim
        if by not in view:
            node.claims -= {claim}
            if not owes(node, process):
                known = node.table.get(process, Entry(at))
                node.table[process] = known._replace(missed_from=NOT_KNOWN)


def is_claimed(node: Node, process: Process) -> bool:
    return any(debtor == process for _, debtor, _ in node.claims)


def claim(node: Node, by: Process, processes: tuple[tuple[Process, int], ...]) -> None:
    """These processes owe that member, and no others."""
    others = frozenset(one for one in node.claims if one[0] != by)
    node.claims = others | {
        (by, process, at) for process, at in processes if process[0] != node.name
    }


def owe(node: Node, process: Process, position: int, last: int) -> None:
    e = node.table[process]
    if position <= e.heard:
        return
    missed_from = e.missed_from
    if missed_from == 0 or 0 < position < missed_from:
        missed_from = position
    node.table[process] = e._replace(missed_from=missed_from, missed_last=max(last, e.missed_last))


def removed(w: World, node: Node) -> None:
    node.away, node.away_from = frozenset(), node.run_from
    if node.sure or node.was_told or len(node.view) > 1:  # else it has met nobody yet
        node.away = frozenset(node.table.keys() - node.view)


def over(w: World, node: Node, number: int, answered: View) -> None:
    if node.running != number:
        return
    for process in list(node.table):
        if process not in answered:
            owe(node, process, node.run_from, node.run_from)
        elif (there := w.find(process)) is not None:
            reach(w, node, process, there.journal.last)
    node.away, node.away_from = frozenset(), 0


def reach(w: World, node: Node, process: Process, position: int) -> None:
    entry = node.table.get(process)
    if "backup" in w.story.also and entry is not None and position > entry.reached:
        node.table[process] = entry._replace(reached=position)


def heard(node: Node, process: Process, upto: int) -> None:
    if node.away_from <= upto:
        node.away -= {process}
    e = node.table[process]
    upto = max(upto, e.heard)
    left = upto + 1 if e.missed_last > upto else 0
    node.table[process] = e._replace(missed_from=left, heard=upto)


def owes(node: Node, process: Process) -> bool:
    return process in node.table and node.table[process].missed_from != 0


def is_silent(node: Node, process: Process) -> bool:
    return process not in node.view and node.table[process].waits == YES


def end_goodbyes(node: Node) -> None:
    for process in node.table:
        if is_silent(node, process) and process in node.goodbyes:
            node.table[process] = node.table[process]._replace(waits=NO)


def to_ask_for(node: Node) -> dict[Process, int]:
    end_goodbyes(node)
    asked = {process: e.at for process, e in node.table.items() if is_silent(node, process)}
    if asked:
        for name in {process[0] for process in node.table}:
            processes = sorted(process for process in node.table if process[0] == name)
            newest = node.table[processes[-1]]
            if not node.view & set(processes) and newest.waits == NO:
                asked[processes[-1]] = newest.at
    return asked


def may_have_outlived(node: Node) -> frozenset[int]:
    """Called before the view of the last start is left."""
    unheard = any(is_silent(node, process) for process in node.table)
    ended = (NEVER,) if unheard else (NEVER, NO)
    return frozenset(
        process[0]
        for process, e in node.table.items()
        if process in node.view or e.waits not in ended
    )


# --- starts, and debts of a process that runs


def start(w: World, node: Node) -> None:
    if w.removal is None or w.removal.driver[0] != node.name:
        for process in node.away & node.table.keys():  # nobody may be left who knows the end
            owe(node, process, node.away_from, node.away_from)
    node.away, node.away_from = frozenset(), 0
    journal_id, position = node.note
    is_old = journal_id != node.journal.id or position > node.journal.last
    if is_old or node.journal.is_void(node.set_at):
        node.page = 0
    node.note = (node.journal.id, node.journal.last)
    node.shown = HIDDEN if node.page else SERVED
    node.is_known = not is_old
    own_view, node.view = node.view, node.last_view
    if is_old:
        node.table, node.waits_for, node.vouched, node.started = {}, frozenset(), 0, 0
        for process in node.last_view:
            if process[0] != node.name:
                node.table[process] = Entry(process[0], YES, NOT_KNOWN)
    if node.vouched == node.started:  # else it ended at its first start since, which knew no more
        node.ended_at = node.journal.last
    node.before, node.began_at = node.started, node.journal.last
    node.started = node.start
    outlived = may_have_outlived(node)
    node.waits_for |= outlived
    node.ended_before = frozenset(process for process in node.table if process[0] not in outlived)
    see(w, node, own_view)
    node.view = own_view


def told(w: World, member: Node, debtor: Node) -> None:
    """Each answer to a handshake says that the caller owes, and so does a call twice a second."""
    asks_again = any(by == debtor.process for by, _, _ in member.claims)
    if asks_again and w.can_call(member, debtor) and member.process in debtor.view:
        claim(member, debtor.process, may_come_back(debtor, member))
    if not (owes(member, debtor.process) or is_claimed(member, debtor.process)) or debtor.left:
        return
    if debtor.sure:
        debtor.sure, debtor.was_told = False, True
    missed = (member.name, member.table.get(debtor.process, Entry(0)).missed_last)
    if missed not in debtor.told_upto:  # pages that were set since the last telling stop, too
        debtor.told_upto = frozenset(t for t in debtor.told_upto if t[0] != member.name) | {missed}
        if debtor.page and debtor.shown == SERVED:
            debtor.shown = STOPPED
    if debtor.was_told:
        debtor.waits_for |= {member.name}


def compares(w: World, node: Node) -> bool:
    if node.sure:
        return False
    reached = any(w.can_talk(node, n) and not n.left for n in w.nodes if n is not node)
    # Alone in its view, it waits for the members that it reaches to take it in.
    return not (len(node.view) == 1 and reached)


def catch_up(w: World, node: Node, lost: Node | None) -> None:
    replies = ask_all(w, node, lost)
    node.has_asked = True
    if not node.was_told:
        trust(node, replies)
    enough = find_enough(node, replies)
    if enough is not None:
        for name, reply in enough.items():
            take(w, node, name, reply)
    elif is_unknown(w, node, replies):
        begin_empty(w, node)
    else:
        node.shown = HIDDEN if node.page and node.shown == STOPPED else node.shown
        return
    for reply in replies.values():
        if reply.running:
            carry_out(w, node, reply.running)
    node.sure, node.shown = True, SERVED
    if not node.is_known:
        node.before = node.start
    node.waits_for = frozenset()
    node.vouched, node.ended_at = node.start, node.began_at
    take_over_claims(node, node.view)
    for name, reply in replies.items():
        heard(w.nodes[name], node.process, reply.upto)


Replies = dict[int, Reply]


def trust(node: Node, replies: Replies) -> None:
    """Members that have missed none of our removals know who has."""
    clear = {process[0] for process in node.view if not owes(node, process)}
    for name, reply in replies.items():
        if reply.vouches and name in clear:
            for process in reply.up_to_date & node.view & node.table.keys():
                node.table[process] = node.table[process]._replace(missed_from=0)


def find_enough(node: Node, replies: Replies) -> Replies | None:
    if not node.was_told:
        remembers = node.is_known or not (node.page or node.journal.last)
        if node.state_is_old or not remembers:
            return None
        nobody_vouches = not any(r.vouches for r in replies.values())
        if node.vouched == 0 and nobody_vouches and others_wait(replies):
            return None
    known = {name: reply for name, reply in replies.items() if reply.known}
    tellers = {name for name, _ in node.told_upto}
    is_any_good = not node.was_told and tellers <= replies.keys()
    if any(r.vouches and (r.owing or is_any_good) for r in known.values()):
        return known
    if any(r.vouches for r in replies.values()) and not node.was_told:
        return None
    together = who_ended_together(node, replies)
    if together is None or not all(had_our_life(node, *named) for named in together.items()):
        return None
    return known


def who_ended_together(node: Node, replies: Replies) -> Replies | None:
    together: Replies = {}
    waiting = set(node.waits_for)
    while waiting:
        name = waiting.pop()
        if name not in replies:
            return None
        together[name] = replies[name]
        waiting |= replies[name].companions - together.keys() - {node.name}
    return together


def had_our_life(node: Node, name: int, reply: Reply) -> bool:
    return reply.known or (not node.was_told and (name, reply.last_settled) in node.ended_before)


def others_wait(replies: Replies) -> bool:
    return any(reply.companions for reply in replies.values())


def knows_later(m: Node, node: Node) -> bool:
    """Whether m knows more of earlier starts of that node than the node's state_dir does."""
    met = max(
        (process[1] for process in m.table if process[0] == node.name and process != node.process),
        default=0,
    )
    last = m.table.get((node.name, node.vouched))
    is_ours = node.before == node.start  # it has begun empty
    return (
        not is_ours
        and node.before != 0
        and (
            node.before < met < node.start
            or (last is not None and node.vouched != node.start and last.reached > node.ended_at)
        )
    )


def is_unknown(w: World, node: Node, replies: Replies) -> bool:
    others = {process[0] for process in node.view if process != node.process}
    vouching = [reply for reply in replies.values() if reply.vouches]
    is_known = any(reply.known for reply in vouching)
    if node.was_told:
        return others | node.waits_for <= replies.keys() and not is_known
    remembers = not node.state_is_old and (node.is_known or not (node.page or node.journal.last))
    if not (remembers or others_wait(replies)):
        return True
    if vouching:
        return not is_known and (others <= replies.keys() or node.vouched == 0)
    together = who_ended_together(node, replies)
    return together is not None and not all(
        had_our_life(node, *named) for named in together.items()
    )


def begin_empty(w: World, node: Node) -> None:
    for process, entry in list(node.table.items()):
        if process not in node.view:
            node.table[process] = entry._replace(missed_from=NOT_KNOWN)
    node.before, node.state_is_old = node.start, False
    node.vouched, node.ended_at = node.start, node.journal.last
    w.drop_all(node, 3 * node.start + node.name)


def take(w: World, node: Node, told_by: int, reply: Reply) -> None:
    for number in reply.removed:
        if number in node.journal.entries:
            continue
        position = node.journal.last + 1
        for process in list(node.table):
            knows = process[0] == told_by and not is_silent(node, process)
            is_here = process in node.view
            if not knows and not (is_here and (not node.was_told or process in reply.up_to_date)):
                owe(node, process, position, position)
        w.write(node, number)


def ask_all(w: World, node: Node, lost: Node | None) -> Replies:
    replies = {m.name: ask(w, node, m, m is lost) for m in w.others(node)}
    return {name: reply for name, reply in replies.items() if reply is not None}


def ask(w: World, node: Node, m: Node, lost: bool) -> Reply | None:
    if not w.can_call(node, m) or node.process not in m.view:
        return None
    contact(w, node, m)
    met, met_us = w.rules.knows_later(node, m), w.rules.knows_later(m, node)
    m.state_is_old |= met
    reach(w, m, node.process, node.journal.last)
    if m.sure and m.state_is_old:
        begin_empty(w, m)
    process = (node.name, node.start if node.was_told else node.vouched)
    entry = m.table.get(process)
    numbers: tuple[int, ...] | None = None
    is_old = m.state_is_old or (met_us and not node.was_told)
    if entry is not None and entry.missed_from != NOT_KNOWN and not is_old:
        numbers = m.journal.since(entry.missed_from) if entry.missed_from else ()
    upto = m.journal.last
    if lost:
        return None
    node.state_is_old |= met_us
    reach(w, node, m.process, m.journal.last)
    believed = not met
    creditors = frozenset(by[0] for by, debtor, _ in m.claims if debtor == process)
    processes = may_come_back(m, node)
    claim(node, m.process, processes)
    owing = entry is not None and entry.missed_from != 0
    # A start asks one member, so that one must know all. Others ask those that they owe as well.
    can_tell = owing or node.was_told or not creditors
    names = tuple(dict.fromkeys(n for n in numbers or () if n not in (0, m.running)))
    return Reply(
        vouches=m.sure and believed,
        known=numbers is not None and believed and can_tell,
        owing=owing,
        removed=names,
        running=m.running,
        companions=m.waits_for | creditors if node.was_told else m.waits_for,
        last_settled=m.vouched,
        upto=upto,
        processes=processes,
        up_to_date=frozenset(process for process in m.view if not owes(m, process)),
    )


def may_come_back(m: Node, node: Node) -> tuple[tuple[Process, int], ...]:
    """Lives that owe m, and may still run."""
    return tuple(
        (process, e.at)
        for process, e in sorted(m.table.items())
        if e.missed_from and process not in m.goodbyes and process != node.process
        if not any(o[0] == process[0] and o > process and m.table[o].at == e.at for o in m.table)
    )


# --- removals


def nobody_else(w: World, driver: Node, members: list[Node]) -> bool:
    ours = to_ask_for(driver)
    asked = dict(ours)
    for m in members:
        asked |= to_ask_for(m)
    for process, at in list(asked.items()):
        later = any(
            m.at == at and m.name == process[0] and m.start >= process[1]
            for m in (driver, *members)
        )
        if later or (process not in ours and process in driver.table):
            del asked[process]
    found = [w.looks_ended(driver, process, at) for process, at in asked.items()]
    if not all(found):
        return False
    for process in list(driver.table):
        if process in asked and is_silent(driver, process):
            driver.table[process] = driver.table[process]._replace(waits=NO)
    return True


def forget(w: World, node: Node, name: int) -> None:
    for process in to_ask_for(node):
        if process[0] == name:
            node.table[process] = node.table[process]._replace(waits=NEVER)
    node.waits_for -= {name}


def may_use(reader: Node, holder: Node) -> bool:
    return reader.sure and not (owes(reader, holder.process) or is_claimed(reader, holder.process))


RULES = Rules(
    begin=begin,
    see=see,
    start=start,
    removed=removed,
    over=over,
    nobody_else=nobody_else,
    forget=forget,
    contact=told,
    catch_up=catch_up,
    compares=compares,
    knows_later=knows_later,
    may_remove=lambda node: not node.left,
    may_give=lambda node: node.sure,
    may_use=may_use,
)
