"""The rules before the one of new.py: five presences of a life, and a case for each return.

They are kept as the control: the search must find the faults that they have. Functions have the
order and the names of peercached/removals/lives.py, peer/removals/catch_up.py and driver.py of
that time.
"""

from __future__ import annotations

from typing import NamedTuple

from model.world import (
    HIDDEN,
    NOT_KNOWN,
    SERVED,
    Life,
    Node,
    Rules,
    View,
    World,
    carry_out,
    contact,
)

HERE, SILENT, FOUND_ENDED, ENDED, FORGOTTEN = range(5)
ASKED_FOR = (SILENT, FOUND_ENDED)
HAS_ENDED = (FOUND_ENDED, ENDED, FORGOTTEN)


class Entry(NamedTuple):
    at: int
    presence: int = HERE
    owed_from: int = 0
    reached: int = 0


class Reply(NamedTuple):
    vouches: bool
    known: bool
    removed: tuple[int, ...]
    running: int
    companions: frozenset[int]
    life: int


# --- lives


def begin(w: World) -> None:
    for node in w.nodes:
        others = frozenset(life for life in node.view if life != node.life)
        node.table = {life: Entry(life[0]) for life in others}
        node.compared = others


def see(w: World, node: Node, view: View) -> None:
    for life in view - {node.life}:
        at = w.nodes[life[0]].at
        found = node.table.get(life)
        if found is None:
            node.table[life] = Entry(at)
        elif found.presence != HERE:
            if found.presence == FORGOTTEN and found.owed_from:
                node.returned |= {(life, found.owed_from)}
            node.table[life] = found._replace(presence=HERE)
        for other, entry in node.table.items():
            if other[0] == life[0] and other != life and entry.at == at:
                node.table[other] = entry._replace(presence=ENDED)
    for life, entry in list(node.table.items()):
        if entry.presence == HERE and life not in view:
            node.returned = frozenset(back for back in node.returned if back[0] != life)
            node.table[life] = entry._replace(presence=ENDED if life in node.goodbyes else SILENT)
            if node.running:
                owe(node, life, node.run_from)
    gone = node.compared - view
    node.stale = (node.stale | gone) - {life for life in node.stale if life in node.compared & view}
    node.compared &= view


def owe(node: Node, life: Life, position: int) -> None:
    entry = node.table[life]
    if entry.owed_from == 0 or position < entry.owed_from:
        node.table[life] = entry._replace(owed_from=position)


def removed(w: World, node: Node) -> None:
    missed(node, node.run_from)


def missed(node: Node, position: int, told_by: int = -1) -> None:
    for life, entry in list(node.table.items()):
        if entry.presence != HERE and (life[0] != told_by or entry.presence != ENDED):
            owe(node, life, position)


def over(w: World, node: Node, number: int, answered: View) -> None:
    if node.running != number:
        return
    for life in list(node.table):
        if life not in answered:
            owe(node, life, node.run_from)
    for life in answered & node.table.keys():
        if (there := w.find(life)) is not None:
            reach(w, node, life, there.journal.last)


def reach(w: World, node: Node, life: Life, position: int) -> None:
    entry = node.table.get(life)
    if "backup" in w.story.also and entry is not None and position > entry.reached:
        node.table[life] = entry._replace(reached=position)


def end_goodbyes(node: Node) -> None:
    for life, entry in list(node.table.items()):
        if entry.presence in ASKED_FOR and life in node.goodbyes:
            node.table[life] = entry._replace(presence=ENDED)


def to_ask_for(node: Node) -> dict[Life, int]:
    end_goodbyes(node)
    if not any(entry.presence in ASKED_FOR for entry in node.table.values()):
        return {}
    asked = {life: e.at for life, e in node.table.items() if e.presence == SILENT}
    for name in {life[0] for life in node.table}:
        lives = sorted(life for life in node.table if life[0] == name)
        newest = node.table[lives[-1]]
        is_away = all(node.table[life].presence != HERE for life in lives)
        if is_away and newest.presence in (FOUND_ENDED, ENDED):
            asked[lives[-1]] = newest.at
    return asked


def may_have_outlived(node: Node) -> frozenset[int]:
    unheard = any(entry.presence in ASKED_FOR for entry in node.table.values())
    ended = (FORGOTTEN,) if unheard else HAS_ENDED
    return frozenset(life[0] for life, e in node.table.items() if e.presence not in ended)


def forget_all(node: Node) -> None:
    node.table = {
        life: e if e.presence == HERE else e._replace(owed_from=NOT_KNOWN)
        for life, e in node.table.items()
        if e.presence == HERE or e.presence in ASKED_FOR
    }


def newest_before(node: Node, life: Life) -> tuple[int, int]:
    """The newest other life of that node that this one has met: its start, its journal."""
    met = ((at[1], e.reached) for at, e in node.table.items() if at[0] == life[0] and at != life)
    return max(met, default=(0, 0))


# --- starts


def start(w: World, node: Node) -> None:
    journal_id, position = node.note
    is_old = journal_id != node.journal.id or position > node.journal.last
    if is_old or node.journal.is_void(node.set_at):
        node.page = 0
    node.note = (node.journal.id, node.journal.last)
    node.shown = HIDDEN if node.page else SERVED
    node.is_known = not is_old
    if is_old:
        node.table, node.waits_for, node.vouched, node.started = {}, frozenset(), 0, 0
        for life in node.last_view:
            if life[0] != node.name:
                node.table[life] = Entry(life[0], SILENT, NOT_KNOWN)
    node.before, node.began_at = node.started, node.journal.last
    node.started = node.start
    outlived = may_have_outlived(node)
    node.waits_for |= outlived
    node.ended_before = frozenset(life for life in node.table if life[0] not in outlived)
    # All others have gone with the view of that start.
    for life, entry in list(node.table.items()):
        if entry.presence == HERE:
            ended = ENDED if life in node.goodbyes else SILENT
            node.table[life] = entry._replace(presence=ended)
    node.compared, node.stale, node.returned = frozenset(), frozenset(), frozenset()


def state_is_old(node: Node) -> bool:
    return node.met_us > (node.before, node.began_at)


def compares(w: World, node: Node) -> bool:
    if not node.sure:
        is_alone = len(node.view) == 1
        reached = any(w.can_talk(node, n) and not n.left for n in w.nodes if n is not node)
        return not (is_alone and reached)  # members that have not taken us in yet
    return any(n.life not in node.compared for n in w.others(node))


def catch_up(w: World, node: Node, lost: Node | None) -> None:
    if node.sure:
        compare(w, node, lost)
        return
    replies = ask_all(w, node, node.vouched, lost)
    node.has_asked = True
    remembers = not state_is_old(node) and (node.is_known or not (node.page or node.journal.last))
    enough = find_enough(node, replies) if remembers else None
    if enough is not None:
        for name, reply in enough.items():
            take(w, node, name, reply.removed)
            if reply.running:
                carry_out(w, RULES, node, reply.running)
    elif is_unknown(w, node, replies) or not (remembers or others_wait(replies)):
        begin_empty(w, node)
        for reply in replies.values():
            if reply.running:
                carry_out(w, RULES, node, reply.running)
    else:
        return
    vouch(node)


def vouch(node: Node) -> None:
    node.sure, node.shown = True, SERVED
    if not node.is_known:
        node.before = node.start
    node.waits_for = frozenset()
    node.vouched = node.start


def compare(w: World, node: Node, lost: Node | None) -> None:
    """Asks nodes that are new in its view. A starting node would have asked within five seconds."""
    for m in w.others(node):
        if m.life not in node.compared and (reply := ask(w, node, m, 0, False, m is lost)):
            drop_if_old(w, node)
            take(w, node, m.name, reply.removed)


def drop_if_old(w: World, node: Node) -> None:
    if node.sure and state_is_old(node):
        begin_empty(w, node)


def begin_empty(w: World, node: Node) -> None:
    forget_all(node)
    node.before = node.start
    w.drop_all(node, node.journal.id)


def take(w: World, node: Node, told_by: int, numbers: tuple[int, ...]) -> None:
    if numbers:
        missed(node, node.journal.last + 1, told_by)
    for number in numbers:
        if number > node.knows or node.page:
            w.write(node, number)


Replies = dict[int, Reply]


def find_enough(node: Node, replies: Replies) -> Replies | None:
    vouching = {name: reply for name, reply in replies.items() if reply.vouches}
    if vouching:
        return next(({name: r} for name, r in vouching.items() if r.known), None)
    if node.vouched == 0 and others_wait(replies):
        return None
    together = who_ended_together(node, replies)
    if together is None or not all(had_our_life(node, *named) for named in together.items()):
        return None
    return {name: reply for name, reply in together.items() if reply.known}


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
    return reply.known or (name, reply.life) in node.ended_before


def others_wait(replies: Replies) -> bool:
    return any(reply.companions for reply in replies.values())


def is_unknown(w: World, node: Node, replies: Replies) -> bool:
    vouching = [reply for reply in replies.values() if reply.vouches]
    if any(reply.known for reply in vouching):
        return False
    if not vouching:
        together = who_ended_together(node, replies)
        return together is not None and not all(
            had_our_life(node, *named) for named in together.items()
        )
    others = {life[0] for life in node.view if life != node.life}
    return others <= replies.keys() or node.vouched == 0


def ask_all(w: World, node: Node, life: int, lost: Node | None) -> Replies:
    replies = {m.name: ask(w, node, m, life, True, m is lost) for m in w.others(node)}
    return {name: reply for name, reply in replies.items() if reply is not None}


def ask(w: World, node: Node, m: Node, life: int, starts: bool, lost: bool) -> Reply | None:
    if not w.can_call(node, m) or node.life not in m.view:
        return None
    contact(w, RULES, node, m)
    met = newest_before(node, m.life)
    met_us = newest_before(m, node.life)
    if starts:
        note_compared(m, node.life)
    meet_us(m, met)
    reach(w, m, node.life, node.journal.last)
    drop_if_old(w, m)
    entry = m.table.get((node.name, life))
    known = entry is not None and entry.owed_from != NOT_KNOWN
    if state_is_old(m) or met_us > (node.before, node.began_at):
        known = False
    numbers: tuple[int, ...] | None = ()
    if known and entry is not None:
        numbers = m.journal.since(entry.owed_from) if entry.owed_from else ()
        known = numbers is not None
    else:
        owed_from = next((at for back, at in m.returned if back == node.life), 0)
        numbers = m.journal.since(owed_from) if owed_from > 0 else ()
    if lost:
        return None
    note_compared(node, m.life)
    meet_us(node, met_us)
    reach(w, node, m.life, m.journal.last)
    vouches = m.sure
    if met > (m.before, m.began_at):
        known = vouches = False
    names = tuple(dict.fromkeys(n for n in numbers or () if n))
    return Reply(vouches, known, names, m.running, m.waits_for, m.vouched)


def note_compared(node: Node, life: Life) -> None:
    node.compared |= {life}
    node.stale -= {life}


def meet_us(node: Node, met: tuple[int, int]) -> None:
    if met[0] < node.start:
        node.met_us = max(node.met_us, met)


# --- removals


def nobody_else(w: World, driver: Node, members: list[Node]) -> bool:
    ours = to_ask_for(driver)
    asked = dict(ours)
    for m in members:
        asked |= to_ask_for(m)
    for life, at in list(asked.items()):
        later = any(m.at == at and m.start >= life[1] for m in (driver, *members))
        if later or (life not in ours and life in driver.table):
            excuse(w, driver, life)
            del asked[life]
    found = [w.looks_ended(driver, life, at) for life, at in asked.items()]
    if not all(found):
        return False
    for life, entry in list(driver.table.items()):
        if asked and entry.presence in ASKED_FOR:
            driver.table[life] = entry._replace(presence=ENDED)
    return True


def excuse(w: World, driver: Node, life: Life) -> None:
    """It looks ended because of another node at its address."""
    process = w.find(life)
    if process is not None and process.life not in driver.view:
        process.excused_by |= {driver.name}


def forget(w: World, node: Node, name: int) -> None:
    for life in to_ask_for(node):
        if life[0] == name:
            node.table[life] = node.table[life]._replace(presence=FORGOTTEN)
    node.waits_for -= {name}


def may_copy(w: World, taker: Node, holder: Node) -> bool:
    return holder.sure and not holder.view & holder.stale


def nothing(w: World, x: Node, y: Node) -> None:
    pass


RULES = Rules(
    name="before",
    begin=begin,
    see=see,
    start=start,
    removed=removed,
    over=over,
    nobody_else=nobody_else,
    forget=forget,
    contact=nothing,
    catch_up=catch_up,
    compares=compares,
    may_remove=lambda node: True,
    may_give=lambda node: node.sure,
    may_copy=may_copy,
    may_use=lambda reader, holder: True,
)
