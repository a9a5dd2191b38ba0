"""Three nodes, one page, and all that may happen to them. The rules (rules.py) are apart.

A value is a number. A `set` that begins before removal 1 stores value 1, a later one value 2, and
so on. So removal n is about all values up to n. A *process* is one start of a node: (node, start).

Abstractions: a call is one step, and its answer may get lost where that matters. A page is in pool
and disk at once. Records at owners are always right. A view has no number: members have the same
view or not. There is no time: what takes seconds may take forever, or no time at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import combinations, permutations
from typing import Any, NamedTuple

NODES = (0, 1, 2)
NAMES = "abc"
VICTIM = 2  # has the page at first. Only this node gets restored backups
NOT_KNOWN = -1

Process = tuple[int, int]
View = frozenset[Process]

# The place of a page at its holder. `STOPPED`: it serves nobody, but a peer's RDMA READ still finds
# it in the pool. `HIDDEN`: it is on the disk alone.
SERVED, STOPPED, HIDDEN = 0, 1, 2


# Reads that a worker must not see.
AT_MISSING = "a read at a node that missed it"
FOR_GOOD = ", for good"  # even when all reach each other and have asked all that they would
AT_KNOWING = "a read at a node that knew"
AT_PEER = "a read at a peer"
BY_RDMA = "a read by RDMA of a process that takes no part"
FROM_LEFT = "`removing` from a node that has left"


class Journal(NamedTuple):
    id: int = 0  # the random number in its header
    floor: int = 0
    entries: tuple[int, ...] = ()  # numbers of removals; 0: an entry of no page

    @property
    def last(self) -> int:
        return self.floor + len(self.entries)

    def since(self, position: int) -> tuple[int, ...] | None:
        return None if position <= self.floor else self.entries[position - self.floor - 1 :]

    def is_void(self, set_at: int) -> bool:
        later = self.entries[max(set_at - self.floor, 0) :]
        return not self.floor <= set_at <= self.last or any(later)


# The contents of a backup.
STATE_DIR = (
    "journal",
    "started",
    "vouched",
    "ended_at",
    "waits_for",
    "table",
    "last_view",
    "goodbyes",
    "knows",
    "claims",
    "away",
    "away_from",
)
DISK = ("page", "set_at", "note")


class Node:
    """A node's state_dir, its disk, its process. Values are immutable, but for `table`."""

    def __init__(self, name: int) -> None:
        self.name = name
        self.up, self.frozen, self.left = True, False, False
        self.start, self.at = 1, name  # `at`: its address
        self.view: View = frozenset()
        # On the disk; `note` is the journal (number, position) that it was used with.
        self.page, self.set_at, self.note = 0, 0, (name, 0)
        self.shown = SERVED
        # In state_dir.
        self.journal = Journal(name)
        self.started = 1  # the newest start that state_dir knows
        self.vouched = 1  # the newest start that had compared with others
        self.ended_at = 0  # our journal's position when that start ended
        self.waits_for: frozenset[int] = frozenset()
        self.table: dict[Process, Any] = {}  # of other processes; the rules say what is in it
        self.last_view = self.view
        self.goodbyes: frozenset[Process] = frozenset()
        # (member, process, address) of processes that owe that member.
        self.claims: frozenset[tuple[Process, Process, int]] = frozenset()
        # Lives that may miss the removal under way here, at this position of the journal.
        self.away: View = frozenset()
        self.away_from = 0
        # Of this process: removal under way here, and its position in the journal.
        self.running, self.run_from = 0, 0
        self.sure = True  # it has missed no removal, as far as it knows
        self.was_told = False  # that it owes, since its start
        self.told_upto: frozenset[tuple[int, int]] = frozenset()  # by whom: its newest miss there
        self.has_asked = True  # since its start, so it takes sets
        self.is_known = True  # state_dir knew an earlier start
        self.before, self.began_at = 0, 0  # the start before, and our journal's position at ours
        self.state_is_old = False  # another node knows more of our earlier starts
        self.ended_before: frozenset[Process] = frozenset()
        # For the judge alone: newest removal that this node has heard of; that was complete when
        # this process talked with a node that had; that did not wait for it, although it ran.
        self.knows, self.touched, self.excluded = 0, 0, 0
        self.excused_by: frozenset[int] = frozenset()  # nodes that need not wait for this process

    @property
    def process(self) -> Process:
        return (self.name, self.start)

    @property
    def runs(self) -> bool:
        return self.up and not self.frozen

    def clone(self) -> Node:
        other = Node.__new__(Node)
        other.__dict__.update(self.__dict__)
        other.table = dict(self.table)
        return other

    def key(self) -> tuple[Any, ...]:
        values = self.__dict__.copy()
        values["table"] = frozenset(self.table.items())
        return tuple(values.values())


class Removal(NamedTuple):
    number: int
    driver: Process
    answered: View


class Story(NamedTuple):
    """The faults that may happen, with their nodes and the number in all. `also`: the nodes that
    may give their page by a `move` or as a `replica`, `set`, `leave`, and have a `backup`."""

    faults: dict[str, str]
    faults_max: int
    also: dict[str, str] = {}  # noqa: RUF012
    remove: str = NAMES  # nodes at which a removal may begin
    removals: int = 1
    starts_max: int = 1  # the first start of all counts as one
    without: str = ""  # nodes that are not there
    away: str = ""  # nodes that have left with a goodbye at first
    settles: bool = False  # after each step, all that the processes do by themselves happens


class World:
    def __init__(self, story: Story, rules: Rules) -> None:
        self.story, self.rules = story, rules
        self.nodes = [Node(name) for name in NODES]
        self.cuts: frozenset[tuple[int, int]] = frozenset()  # calls from x to y fail
        self.rejects: frozenset[int] = frozenset()  # cut off, and it looks as if nobody listened
        self.removal: Removal | None = None
        self.begun, self.done = 0, 0  # the newest removal that began, that was answered `ok`
        self.starts = 1
        self.faults = 0  # so many until now
        self.saved_state: tuple[Any, ...] | None = None
        self.saved_disk: tuple[Any, ...] | None = None
        self.left_removed = False  # a node that had left answered `removing`
        self.nodes[VICTIM].page = 1
        there = frozenset(n.process for n in self.nodes if NAMES[n.name] not in story.without)
        for node in self.nodes:
            node.view = node.last_view = there
            node.up = node.process in there

    def clone(self) -> World:
        other = World.__new__(World)
        other.__dict__.update(self.__dict__)
        other.nodes = [node.clone() for node in self.nodes]
        return other

    def key(self) -> tuple[Any, ...]:
        values = self.__dict__.copy()
        values["story"] = values["rules"] = 0
        values["nodes"] = tuple(node.key() for node in self.nodes)
        return tuple(values.values())

    # --- who reaches whom

    def listener(self, caller: int, address: int) -> Node | None:
        """The process that a call to this address reaches."""
        there = [
            n for n in self.nodes if n.up and n.at == address and (caller, n.name) not in self.cuts
        ]
        return max(there, key=lambda node: node.start, default=None)

    def can_call(self, x: Node, y: Node) -> bool:
        if x.left or y.left:
            return False  # it has stopped serving, and members tell it nothing
        return x.runs and y.runs and x is not y and self.listener(x.name, y.at) is y

    def can_talk(self, x: Node, y: Node) -> bool:
        return self.can_call(x, y) or self.can_call(y, x)

    def find(self, process: Process) -> Node | None:
        """The process, if it is up."""
        node = self.nodes[process[0]]
        return node if node.up and node.start == process[1] else None

    def others(self, node: Node) -> list[Node]:
        """The other processes in its view, if they are up."""
        return [
            n
            for process in sorted(node.view)
            if (n := self.find(process)) is not None and n is not node
        ]

    def looks_ended(self, asker: Node, process: Process, address: int) -> bool:
        """Whether nothing listens at that address, or another node does
        (`vanished_processes.py`)."""
        there = self.listener(asker.name, address)
        if there is not None:
            ended = there.runs and there.name != process[0]
        elif (asker.name, process[0]) in self.cuts:
            ended = process[0] in self.rejects
        else:
            ended = True
        if ended and (running := self.find(process)) is not None:
            running.excused_by |= {asker.name}
        return ended

    # --- steps that rules take

    def write(self, node: Node, removal: int) -> None:
        """The node removes the page, and writes this into its journal."""
        node.page, node.shown = 0, SERVED if node.sure else node.shown
        node.journal = node.journal._replace(entries=(*node.journal.entries, removal))
        node.note = (node.journal.id, node.journal.last)
        node.knows = max(node.knows, removal)

    def drop_all(self, node: Node, journal_id: int) -> None:
        node.page = 0
        node.journal = Journal(journal_id, node.journal.last + 1)
        node.note = (journal_id, node.journal.last)


class Rules(NamedTuple):
    """Functions of rules.py. Each takes the world and nodes of it."""

    begin: Callable[[World], None]
    see: Callable[[World, Node, View], None]  # takes a new view
    start: Callable[[World, Node], None]
    removed: Callable[[World, Node], None]  # a removal has begun here
    over: Callable[[World, Node, int, View], None]
    nobody_else: Callable[[World, Node, list[Node]], bool]  # no process out of view can serve
    forget: Callable[[World, Node, int], None]
    contact: Callable[[World, Node, Node], None]  # x and y have talked
    catch_up: Callable[[World, Node, Node | None], None]  # asks members; an answer may get lost
    compares: Callable[[World, Node], bool]  # whether it would ask now
    knows_later: Callable[[Node, Node], bool]  # x knows starts of y that y has forgotten
    may_remove: Callable[[Node], bool]
    may_give: Callable[[Node], bool]  # moves and replicas
    may_use: Callable[[Node, Node], bool]  # x's engine looks for pages at y


def contact(w: World, x: Node, y: Node) -> None:
    for one, other in ((x, y), (y, x)):
        one.goodbyes |= other.goodbyes
        if other.knows > one.knows and other.sure and not other.running:
            one.touched = max(one.touched, min(other.knows, w.done))
        # A process started later that talks only with processes that nobody waited for.
        if one.touched < other.excluded and other.touched < other.excluded and one.start > 1:
            one.excluded = max(one.excluded, other.excluded)
        if one.running and other.knows >= one.running and w.done >= one.running:
            w.rules.over(w, one, one.running, frozenset((one.process, other.process)))
            one.running = one.run_from = 0
    w.rules.contact(w, x, y)
    w.rules.contact(w, y, x)


def carry_out(w: World, node: Node, number: int) -> None:
    if node.running == number or (node.knows >= number and w.done >= number):
        return
    node.running = number
    if node.journal.entries[-1:] != (number,) or node.page:  # else the last entry is the same
        w.write(node, number)
    node.run_from = node.journal.last
    w.rules.removed(w, node)


# --- what may happen. Each yields a text and the world afterwards.

Step = tuple[str, World]


def begin(story: Story, rules: Rules) -> World:
    w = World(story, rules)
    w.rules.begin(w)
    for node in w.nodes:
        if NAMES[node.name] in story.away:
            _leave(w, node)
            w = settled(w)
    return w


def change(w: World) -> tuple[World, list[Node]]:
    other = w.clone()
    return other, other.nodes


def views(w: World) -> Iterator[Step]:
    """A member gives a new view to those that it reaches. Nobody is left out without a reason."""
    alive = [n for n in w.nodes if n.runs and not n.left]
    for size in (1, 2, 3):
        for group in combinations(alive, size):
            lags = [n for n in group if size > 1 and may(w, "lag", n)]
            for lag in (None, *lags):
                yield from _view(w, alive, group, lag)


def _view(w: World, alive: list[Node], group: tuple[Node, ...], lag: Node | None) -> Iterator[Step]:
    view = frozenset(n.process for n in group)
    takers = [n for n in group if n is not lag]
    if all(n.view == view for n in takers):
        return
    for out in alive:
        if out not in group and all(w.can_call(out, n) and w.can_call(n, out) for n in group):
            return
    for head in group:
        if all(w.can_talk(head, n) for n in group if n is not head):
            yield _viewed(w, group, head, lag)


def _viewed(w: World, group: tuple[Node, ...], head: Node, lag: Node | None) -> Step:
    after, nodes = change(w)
    view = frozenset(n.process for n in group)
    takers = [nodes[n.name] for n in group if n is not lag]
    for one in takers:
        if one.name != head.name:
            contact(after, nodes[head.name], one)
    for one in takers:
        w.rules.see(after, one, view)
        one.view = one.last_view = view
        for other in nodes:
            if other.process in view:
                other.excused_by -= {one.name}
    text = f"{NAMES[head.name]} makes view " + "".join(NAMES[n.name] for n in group)
    if lag is not None:
        after.faults += 1
        text += f", not at {NAMES[lag.name]}"
    return text, after


def calls(w: World) -> Iterator[Step]:
    for x, y in permutations(w.nodes, 2):
        if w.can_call(x, y):
            after, nodes = change(w)
            contact(after, nodes[x.name], nodes[y.name])
            yield f"{NAMES[x.name]} calls {NAMES[y.name]}", after


def pages(w: World) -> Iterator[Step]:
    for x, y in permutations(w.nodes, 2):
        if w.can_call(x, y) and y.process in x.view:
            yield from _pages(w, x, y)


def asks(w: World) -> Iterator[Step]:
    for x in w.nodes:
        if x.runs and not x.left and w.rules.compares(w, x):
            for lost in (None, *(n for n in w.others(x) if may(w, "lost", n))):
                after, nodes = change(w)
                w.rules.catch_up(after, nodes[x.name], lost and nodes[lost.name])
                if lost is not None:
                    after.faults += 1
                lost_text = f", the answer of {NAMES[lost.name]} gets lost" if lost else ""
                yield f"{NAMES[x.name]} asks what it missed{lost_text}", after


def _pages(w: World, x: Node, y: Node) -> Iterator[Step]:
    """x gives its page to y, or y makes a replica of x's."""
    is_free = y.page == 0 and y.running == 0 and y.has_asked
    if not (x.page and x.shown == SERVED and is_free and x.process in y.view):
        return
    for kind in ("move", "replica"):
        if does(w, kind, x) and w.rules.may_give(x) and w.rules.may_use(y, x):
            after, nodes = change(w)
            giver, taker = nodes[x.name], nodes[y.name]
            contact(after, giver, taker)
            if giver.shown == SERVED and w.rules.may_use(taker, giver):
                taker.page, taker.set_at = giver.page, taker.journal.last
                taker.shown = SERVED
                if kind == "move":
                    giver.page = 0
                yield f"{kind} {NAMES[x.name]} to {NAMES[y.name]}", after


def keys(w: World) -> Iterator[Step]:
    for x in w.nodes:
        name = NAMES[x.name]
        if not x.runs:
            continue
        value = w.begun + 1
        is_free = x.page == 0 or x.shown != SERVED
        takes = x.has_asked and not x.left and x.running == 0
        if does(w, "set", x) and value <= w.story.removals and is_free and takes:
            after, nodes = change(w)
            one = nodes[x.name]
            one.page, one.set_at, one.shown = value, one.journal.last, SERVED
            yield f"set {value} at {name}", after
        may_begin = name in w.story.remove and w.removal is None and w.begun < w.story.removals
        if may_begin and w.rules.may_remove(x):
            after, nodes = change(w)
            after.begun += 1
            after.removal = Removal(after.begun, x.process, frozenset())
            after.left_removed = x.left
            carry_out(after, nodes[x.name], after.begun)
            yield f"remove {after.begun} begins at {name}", after


def removal(w: World) -> Iterator[Step]:
    if (removal := w.removal) is None:
        return
    number = removal.number
    driver = w.find(removal.driver)
    if driver is None or driver.left:
        for x in w.nodes:
            begun_here = x.name == removal.driver[0]  # state_dir remembers it
            if x.runs and not x.left and (x.running == number or (begun_here and x.has_asked)):
                after, nodes = change(w)
                after.removal = Removal(number, x.process, frozenset())
                carry_out(after, nodes[x.name], number)
                yield f"{NAMES[x.name]} drives removal {number} on", after
        return
    if not driver.runs:
        return
    members = w.others(driver)
    for m in members:
        if m.process not in removal.answered and w.can_call(driver, m):
            after, nodes = change(w)
            contact(after, nodes[driver.name], nodes[m.name])
            carry_out(after, nodes[m.name], number)
            after.removal = removal._replace(answered=removal.answered | {m.process})
            yield f"{NAMES[m.name]} carries removal {number} out", after
    if len(members) + 1 < len(driver.view):
        return
    if not all(
        m.process in removal.answered and w.can_call(driver, m) and m.view == driver.view
        for m in members
    ):
        return
    if not any(m.sure for m in (driver, *members)):
        return
    after, nodes = change(w)
    head = nodes[driver.name]
    heard = [nodes[m.name] for m in members]
    if not w.rules.nobody_else(after, head, heard):
        return
    after.done, after.removal = number, None
    answered = removal.answered | {head.process}
    for m in (head, *heard):
        w.rules.over(after, m, number, answered)
        m.running = m.run_from = 0
    for n in nodes:
        by = {m.name for m in (head, *heard)}
        if n.up and n.process not in answered and n.excused_by & by:
            n.excluded = number
    yield f"removal {number} is complete", after


def does(w: World, what: str, node: Node) -> bool:
    return NAMES[node.name] in w.story.also.get(what, "")


def may(w: World, kind: str, node: Node) -> bool:
    return w.faults < w.story.faults_max and NAMES[node.name] in w.story.faults.get(kind, "")


def faults(w: World) -> Iterator[Step]:
    for x in w.nodes:
        name = NAMES[x.name]
        for kind, able, act in _faults_of(w, x):
            if able and may(w, kind, x):
                after, nodes = change(w)
                act(after, nodes[x.name])
                after.faults += 1
                yield f"{kind} {name}", after
        if x.frozen:
            after, nodes = change(w)
            nodes[x.name].frozen = False
            yield f"{name} goes on", after
        comes_back = w.starts < w.story.starts_max or w.story.starts_max == 1
        if does(w, "leave", x) and x.runs and not x.left and comes_back:
            after, nodes = change(w)
            _leave(after, nodes[x.name])
            yield f"{name} leaves with a goodbye", after
        if (not x.up or x.left) and w.starts < w.story.starts_max and name not in w.story.without:
            yield from _starts(w, x)
    if w.cuts:
        after, nodes = change(w)
        after.cuts, after.rejects = frozenset(), frozenset()
        yield "heal", after
    for x, z in permutations(w.nodes, 2):
        is_away = z.up and z.process not in x.view
        if may(w, "forget", z) and is_away and x.runs and not x.left:
            if w.listener(x.name, z.at) is not None:
                continue  # `forget` is refused while something takes connections there
            after, nodes = change(w)
            for one in (nodes[x.name], *after.others(nodes[x.name])):
                if one.name == x.name or after.can_call(nodes[x.name], one):
                    w.rules.forget(after, one, z.name)
                    nodes[z.name].excused_by |= {one.name}
            after.faults += 1
            yield f"forget {NAMES[z.name]} at {NAMES[x.name]}", after


Act = Callable[[World, Node], None]


def _faults_of(w: World, x: Node) -> Iterable[tuple[str, bool, Act]]:
    others = [n for n in NODES if n != x.name]
    both = frozenset(p for n in others for p in ((x.name, n), (n, x.name)))
    is_cut = any((n, x.name) in w.cuts for n in others)

    def pause(after: World, node: Node) -> None:
        node.frozen = True

    def cut(after: World, node: Node) -> None:
        after.cuts |= both

    def cut_in(after: World, node: Node) -> None:
        after.cuts |= frozenset((n, x.name) for n in others)

    def cut_out(after: World, node: Node) -> None:
        after.cuts |= frozenset((x.name, n) for n in others)

    def reject(after: World, node: Node) -> None:
        after.rejects |= {x.name}

    def kill(after: World, node: Node) -> None:
        node.up = node.frozen = node.left = False

    def restore_state(after: World, node: Node) -> None:
        assert w.saved_state is not None
        node.up = node.left = False
        node.__dict__.update(zip(STATE_DIR, w.saved_state, strict=True))
        node.table = dict(node.table)

    def restore_disk(after: World, node: Node) -> None:
        assert w.saved_disk is not None
        node.up = node.left = False
        node.__dict__.update(zip(DISK, w.saved_disk, strict=True))

    yield "pause", x.runs, pause
    yield "cut", x.up and not is_cut, cut
    yield "cut in", x.up and not is_cut, cut_in
    yield "cut out", x.up and not is_cut, cut_out
    yield "reject", x.up and is_cut and x.name not in w.rejects, reject
    yield "kill", x.up and not x.left, kill
    if x.name == VICTIM and (not x.up or x.left):
        yield "restore state_dir of", w.saved_state is not None, restore_state
        yield "restore disk of", w.saved_disk is not None, restore_disk
        has_dropped_all = x.journal.floor > 0
        yield "later restore disk of", w.saved_disk is not None and has_dropped_all, restore_disk


def _leave(w: World, node: Node) -> None:
    for other in w.others(node):
        if w.can_call(node, other):
            contact(w, node, other)
            other.goodbyes |= {node.process}
    node.left = True


def start(w: World, node: Node, address: int) -> None:
    w.starts += 1
    node.up, node.frozen, node.left = True, False, False
    node.start, node.at = w.starts, address
    node.view = frozenset((node.process,))
    node.running = node.run_from = node.touched = node.excluded = 0
    node.excused_by = frozenset()
    node.sure, node.was_told, node.has_asked = False, False, False
    node.told_upto = frozenset()
    node.state_is_old = False
    w.rules.start(w, node)
    node.last_view = node.view


def _starts(w: World, x: Node) -> Iterator[Step]:
    addresses = [x.name]
    if may(w, "address", x):
        addresses = [VICTIM]
    for address in addresses:
        after, nodes = change(w)
        start(after, nodes[x.name], address)
        text = f"start {NAMES[x.name]}"
        if address != x.name:
            after.faults += 1
            text += f" at the address of {NAMES[address]}"
        yield text, after
        if may(after, "crash", x):
            after, nodes = change(after)
            nodes[x.name].up = False
            after.faults += 1
            yield f"{text}, which ends before it asks", after


def backups(w: World) -> Iterator[Step]:
    if "backup" not in w.story.also:
        return
    for kind, fields in (("state", STATE_DIR), ("disk", DISK)):
        if getattr(w, f"saved_{kind}") is None:
            after, nodes = change(w)
            values = nodes[VICTIM].__dict__
            copy = tuple(tuple(values[f].items()) if f == "table" else values[f] for f in fields)
            setattr(after, f"saved_{kind}", copy)
            yield f"copy {kind} of {NAMES[VICTIM]}", after


def steps(w: World) -> Iterator[Step]:
    for kind in (views, calls, asks, pages, keys, removal, faults, backups):
        for text, after in kind(w):
            yield text, settled(after) if w.story.settles else after


def whole_view(w: World) -> Iterator[Step]:
    alive = [n for n in w.nodes if n.runs and not n.left]
    yield from _view(w, alive, tuple(alive), None)


def settled(w: World) -> World:
    """Afterwards no process has anything left to do, unless it goes round in circles."""
    for _ in range(50):
        key = w.key()
        for kind in (whole_view, calls, asks, removal):
            after = next((after for _, after in kind(w) if after.key() != key), None)
            if after is not None:
                w = after
                break
        else:
            break
    return w


def healed(w: World) -> World:
    """All nodes run, each at its own address, all reach each other, and all is settled."""
    after, nodes = change(w)
    after.cuts, after.rejects = frozenset(), frozenset()
    for node in nodes:
        node.frozen = False
        is_well = node.up and not node.left and node.at == node.name
        if not is_well and NAMES[node.name] not in w.story.without:
            start(after, node, node.name)
    return settled(after)


def is_over(w: World) -> bool:
    """Whether nobody can read a removed page any more, whatever happens."""
    pages = [node.page for node in w.nodes]
    if w.saved_disk is not None:
        pages.append(w.saved_disk[DISK.index("page")])
    return w.begun == w.story.removals and not any(0 < page <= w.begun for page in pages)


# --- the judge


def is_excused(w: World, node: Node, value: int) -> bool:
    """The limit that no rule can close: removals did not wait for this process, and it has not
    talked with anybody that knows that they are complete. Nor does a member that carried it out and
    was cut off from its driver since: it will drive the removal on."""
    if node.running >= value and node.page != value:
        return True
    return node.excluded >= value > max(node.touched, node.knows)


def wrong(w: World) -> Iterator[str]:
    """Each kind of read of a removed page that is possible now, and each false answer."""
    if w.left_removed:
        yield FROM_LEFT
    if not w.done:
        return
    for holder in w.nodes:
        if not (holder.up and not holder.left and 0 < holder.page <= w.done):
            continue
        for reader in w.nodes:
            if (
                not (reader.runs and reader.has_asked)
                or reader.left
                or is_excused(w, reader, holder.page)
            ):
                continue
            if reader is holder:
                if holder.shown == SERVED:
                    yield AT_KNOWING if holder.knows >= holder.page else AT_MISSING
                    after = healed(w).nodes[holder.name]
                    if after.shown == SERVED and 0 < after.page <= w.done:
                        yield AT_MISSING + FOR_GOOD
            elif is_excused(w, holder, holder.page) and is_excused(w, reader, holder.page):
                continue
            elif holder.process in reader.view and w.rules.may_use(reader, holder):
                reaches = (reader.name, holder.name) not in w.cuts
                if reaches and holder.runs and holder.shown == SERVED:
                    yield AT_PEER
                elif reaches and holder.shown != HIDDEN:
                    yield BY_RDMA
