"""Generations of the object store (docs/cold-tier.md, "Generations"): random stories.

Two clusters share a store with one namespace. Actors set, move, write, read and remove pages,
compact the store, delete and merge records. Each stops after each of its steps, some for very long,
and the others go on. A listing is no picture of one moment: it goes through the names in their
order, and reads the records later.

    PYTHONPATH=tests .venv/bin/python -m model.cold_generations [STORIES]

Time is not counted. A reader may use a listing that began before a removal's put only until that
removal is answered (VALID_S in peercached/cold/voids.py).
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Generator
from typing import NamedTuple

from peercached.cold.format import Record, log_path
from peercached.cold.sweeper import useless
from peercached.cold.voids import ANY_NAMESPACE

NAMESPACE = b"n" * 16
DIGESTS = (b"d" * 16, b"e" * 16)
CLUSTERS = ((0,), (1, 2))  # nodes
LIST_PAGE = 2  # names that a listing finds at one moment
STEPS = 400
ACTORS_MAX = 6

Actor = Generator[None, None, None]


class Rules(NamedTuple):
    """All that the promise rests on. The test takes each away in turn."""

    a_record_voids_the_generation_behind: bool = True
    a_remover_lists_after_its_put: bool = True
    a_page_keeps_the_generation_it_was_born_in: bool = True
    a_compaction_looks_after_it_knows_the_generation: bool = True
    a_compaction_copies_nothing_void: bool = True
    a_record_ends_two_generations_later: bool = True
    the_highest_generation_is_kept: bool = True
    a_vanished_record_means_another_look: bool = True


class Page(NamedTuple):
    version: int  # which set it is of
    born: int


class Object(NamedTuple):
    generation: int
    pages: dict[bytes, int]  # digest -> version


class Node:
    def __init__(self, skew: int) -> None:
        self.skew = skew  # of its clock
        self.pool: dict[bytes, Page] = {}
        self.removing: set[bytes] = set()
        self.generation = 0
        self.floor = (0, 0)
        self.removed: dict[bytes, int] = {}
        self.newest_ms = 0
        self.listed_at = -1  # begin of its newest complete listing


class Old(Exception):
    """A removed page came back."""


class World:
    def __init__(self, seed: int, rules: Rules) -> None:
        self.random = random.Random(seed)
        self.rules = rules
        self.now = 0
        self.nodes = [Node(self.random.choice((0, 0, -300, 300))) for _ in range(3)]
        self.records: dict[str, Record] = {}
        self.objects: dict[int, Object] = {}
        # Each story has its own favourites, so that rare mixtures come, too.
        self.weights = [
            often * self.random.choice((0.1, 1, 5))
            for often in (15, 5, 2, 4, 15, 25, 12, 12, 12, 2)
        ]
        self.numbers = iter(range(1, 1 << 30))
        self.set_at: dict[int, int] = {}  # version -> when its set was over
        # (cluster, digest) -> (begin of the put, begin of the removal, answer)
        self.answered: dict[tuple[int, bytes], list[tuple[int, int, int]]] = {}

    # --- the store's log

    def upto(self, record: Record) -> int:
        return record.upto if self.rules.a_record_voids_the_generation_behind else record.upto - 1

    def put(self, node: Node, record: Record) -> str:
        ms = max(self.now + node.skew + 1000, node.newest_ms + 1)
        path = log_path("voids", ms, next(self.numbers).to_bytes(16, "big"))
        self.records[path] = record
        return path

    def look(self, node: Node) -> Actor:
        """Ends when a listing that began after this call is complete."""
        while True:
            began = self.now
            names: list[str] = []
            cursor = ""
            while True:
                page = sorted(path for path in self.records if path > cursor)[:LIST_PAGE]
                names += page
                yield
                if len(page) < LIST_PAGE:
                    break
                cursor = page[-1]
            gone = False
            for path in names:
                if (record := self.records.get(path)) is None:
                    gone = True
                else:
                    self.take(node, record)
                    node.newest_ms = max(node.newest_ms, int(path[6:19]))
                if self.random.random() < 0.3:
                    yield
            if not gone or not self.rules.a_vanished_record_means_another_look:
                node.listed_at = max(node.listed_at, began)
                return

    def take(self, node: Node, record: Record) -> None:
        node.generation = max(node.generation, record.generation)
        if record.digests:
            for digest in record.each:
                node.removed[digest] = max(node.removed.get(digest, -1), self.upto(record))
        elif record.namespace_id == NAMESPACE:
            node.floor = max(node.floor, record.floor)

    def is_void(self, node: Node, digest: bytes, generation: int) -> bool:
        return (0, generation) < node.floor or generation <= node.removed.get(digest, -1)

    # --- what actors do

    def set(self, number: int, digest: bytes) -> None:
        node = self.nodes[number]
        if digest in node.pool or digest in node.removing:
            return
        version = next(self.numbers)
        self.set_at[version] = self.now
        node.pool[digest] = Page(version, node.generation)

    def arrives(self, node: Node, digest: bytes, page: Page) -> None:
        if not self.rules.a_page_keeps_the_generation_it_was_born_in:
            page = Page(page.version, node.generation)
        node.pool.setdefault(digest, page)

    def move(self, number: int, digest: bytes) -> None:
        """To another node of the cluster."""
        to = self.nodes[self.random.choice(self.cluster_of(number))]
        if digest in self.nodes[number].pool and digest not in to.removing:
            self.arrives(to, digest, self.nodes[number].pool[digest])

    def cluster_of(self, number: int) -> tuple[int, ...]:
        return next(nodes for nodes in CLUSTERS if number in nodes)

    def write(self, number: int) -> Actor:
        node = self.nodes[number]
        chosen = {
            digest: page
            for digest, page in node.pool.items()
            if not self.is_void(node, digest, page.born)
        }
        if not chosen:
            return
        generation = min(page.born for page in chosen.values())
        yield
        pages = {digest: page.version for digest, page in chosen.items()}
        self.objects[next(self.numbers)] = Object(generation, pages)

    def read(self, number: int, digest: bytes) -> Actor:
        node, cluster = self.nodes[number], CLUSTERS.index(self.cluster_of(number))
        began = self.now
        yield from self.look(node)
        if not self.may_use(cluster, digest, node.listed_at) or digest in node.removing:
            return
        found = [
            one
            for one in self.objects.values()
            if digest in one.pages and not self.is_void(node, digest, one.generation)
        ]
        if not found:
            return
        one = self.random.choice(found)
        version = one.pages[digest]
        for _, removal_began, answer in self.answered.get((cluster, digest), ()):
            if self.set_at[version] < removal_began and answer < began:
                raise Old(f"version {version} of {digest!r}, generation {one.generation}")
        self.arrives(node, digest, Page(version, one.generation))

    def may_use(self, cluster: int, digest: bytes, listed_at: int) -> bool:
        """VALID_S after the begin of the listing has not passed."""
        every = (one for (_, of), them in self.answered.items() if of == digest for one in them)
        return all(put_at < listed_at for put_at, _, _ in every)

    def remove(self, number: int, digest: bytes) -> Actor:
        node = self.nodes[number]
        nodes = self.cluster_of(number)
        began = self.now
        if digest in node.removing:
            return
        node.removing.add(digest)
        while True:
            generation = node.generation
            put_at = self.now
            self.put(node, Record(NAMESPACE, 0, digest, generation))
            yield
            if not self.rules.a_remover_lists_after_its_put:
                break
            yield from self.look(node)
            if node.generation == generation:
                break
        for other in nodes:
            yield
            self.nodes[other].removing.add(digest)
            self.nodes[other].pool.pop(digest, None)
        yield
        of = (CLUSTERS.index(nodes), digest)
        self.answered.setdefault(of, []).append((put_at, began, self.now))
        for other in nodes:
            self.nodes[other].removing.discard(digest)

    def compact(self, number: int) -> Actor:
        node = self.nodes[number]
        self.put(node, Record(ANY_NAMESPACE, 0, generation=node.generation + 1))
        yield from self.look(node)
        while True:
            before = node.generation
            yield from self.look(node)
            if not self.rules.a_compaction_looks_after_it_knows_the_generation:
                before = node.generation
            if node.generation == before:
                break
        generation = before + 1
        for one in list(self.objects.values()):
            if one.generation >= generation or (0, one.generation) < node.floor:
                continue
            live = {
                digest: version
                for digest, version in one.pages.items()
                if not self.is_void(node, digest, one.generation)
                or not self.rules.a_compaction_copies_nothing_void
            }
            if live:
                yield
                self.objects[next(self.numbers)] = Object(generation, live)
        yield
        self.put(node, Record(NAMESPACE, 0, generation=generation))

    def sweep(self, number: int) -> Actor:
        """Deletes useless records, and objects below the floor."""
        node = self.nodes[number]
        yield from self.look(node)
        records = dict(self.records)
        for path in self.useless(records):
            yield
            self.records.pop(path, None)
        for name, one in list(self.objects.items()):
            if (0, one.generation) < node.floor:
                yield
                self.objects.pop(name, None)

    def useless(self, records: dict[str, Record]) -> list[str]:
        rules = self.rules
        if not rules.the_highest_generation_is_kept:
            return self._useless_by(records, keeps_highest=False)
        if not rules.a_record_ends_two_generations_later:
            return self._useless_by(records, early=1)
        return useless(records)

    def _useless_by(
        self,
        records: dict[str, Record],
        early: int = 0,
        keeps_highest: bool = True,
    ) -> list[str]:
        """The same as sweeper.useless(), without one of its rules."""
        found = []
        for path, record in records.items():
            later = [other for name, other in records.items() if name > path]
            floor = max(
                (r.floor for r in later if r.namespace_id == NAMESPACE and not r.digests),
                default=(-1, 0),
            )
            said = (0, record.upto - early) < floor if record.digests else record.floor < floor
            said = said or (record.namespace_id == ANY_NAMESPACE and not record.digests)
            high = any(other.generation >= record.generation for other in later)
            if said and (high or not keeps_highest):
                found.append(path)
        return found

    def merge(self, number: int) -> Actor:
        node = self.nodes[number]
        yield from self.look(node)
        some = [path for path, record in self.records.items() if record.digests][:3]
        if len(some) < 2:
            return
        digests = b"".join(sorted({d for path in some for d in self.records[path].each}))
        while True:
            generation = node.generation
            merged = self.put(node, Record(NAMESPACE, 0, digests, generation))
            yield
            yield from self.look(node)
            if node.generation <= generation:
                break
        for path in some:
            if path < merged:
                yield
                self.records.pop(path, None)

    # --- the story

    def begin(self) -> Actor | None:
        """The next actor; None: it was over at once."""
        number = self.random.randrange(3)
        digest = self.random.choice(DIGESTS)
        kinds: dict[str, Callable[[], Actor | None]] = {
            "set": lambda: self.set(number, digest),
            "move": lambda: self.move(number, digest),
            "vanish": self.vanish,
            "restart": lambda: self.restart(number),
            "write": lambda: self.write(number),
            "read": lambda: self.read(number, digest),
            "remove": lambda: self.remove(number, digest),
            "compact": lambda: self.compact(number),
            "sweep": lambda: self.sweep(number),
            "merge": lambda: self.merge(number),
        }
        (kind,) = self.random.choices(list(kinds), self.weights)
        return kinds[kind]()

    def restart(self, number: int) -> None:
        """Without its pages. Actors of the former process go on, as if it were frozen."""
        before = self.nodes[number]
        self.nodes[number] = Node(before.skew)
        self.nodes[number].removing |= before.removing

    def vanish(self) -> None:
        if self.objects:
            del self.objects[self.random.choice(sorted(self.objects))]

    def run(self) -> None:
        """Raises Old."""
        running: list[tuple[Actor, float]] = []
        while self.now < STEPS:
            self.now += 1
            begins = len(running) < ACTORS_MAX and self.random.random() < 0.5
            if begins and (actor := self.begin()) is not None:
                running.append((actor, self.random.choice((1.0, 1.0, 1.0, 0.1, 0.02))))
            if not running:
                continue
            (chosen,) = self.random.choices(running, [weight for _, weight in running])
            if next(chosen[0], self) is self:
                running.remove(chosen)


def first_wrong(rules: Rules, stories: int, begin: int = 0) -> str:
    """Plays so many stories. Returns the first fault; empty: there was none."""
    for seed in range(begin, begin + stories):
        try:
            World(seed, rules).run()
        except Old as old:
            return f"story {seed}: {old}"
    return ""


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
    print("all rules:", first_wrong(Rules(), count) or "nothing is wrong")
    for rule in Rules._fields:
        print(f"without {rule}:", first_wrong(Rules()._replace(**{rule: False}), count))
