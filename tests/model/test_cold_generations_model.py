"""No removed page comes back from the object store, and each rule is needed for that."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from model.cold_generations import DIGESTS, NAMESPACE, Actor, Old, Rules, World, first_wrong
from peercached.cold.format import Record
from peercached.cold.voids import ANY_NAMESPACE

STORIES = 250
PAGE = DIGESTS[0]


def finish(actor: Actor) -> None:
    for _ in actor:
        pass


def finish_all(world: World, *actors: Actor) -> None:
    for actor in actors:
        world.now += 1
        finish(actor)


def another_cluster_still_has_the_page(world: World) -> None:
    """The record has ended. The page goes to a node that never heard of it."""
    world.set(1, PAGE)
    finish_all(world, world.remove(0, PAGE), world.compact(0), world.compact(0), world.sweep(0))
    finish(world.look(world.nodes[2]))
    world.random.seed(1)
    while PAGE not in world.nodes[2].pool:
        world.move(1, PAGE)
    finish_all(world, world.write(2), world.read(0, PAGE))


def a_compaction_overlooks_a_record(world: World) -> None:
    """Its listing has passed the place where the record comes, and then finds a new generation."""
    remover, ahead, sweeper = world.nodes
    remover.skew, ahead.skew, sweeper.skew = 0, 500, 0
    world.set(1, PAGE)
    finish(world.write(1))
    compaction = world.compact(2)
    next(compaction)
    finish(world.look(remover))  # now it knows the newest name of this moment
    for _ in range(2):
        world.put(ahead, Record(NAMESPACE, 0))
    while sweeper.listed_at < 0:
        next(compaction)
    world.now += 1
    finish_all(world, world.remove(0, PAGE), world.look(ahead))
    next(world.compact(1))
    finish_all(world, compaction, world.read(0, PAGE))


def two_compactions_have_one_generation(world: World) -> None:
    """One of them has not seen the record, and ends late."""
    never_yields_between_records(world)
    world.set(1, PAGE)
    finish(world.write(1))
    late, other = world.compact(2), world.compact(0)
    next(other)
    for _ in range(5):  # it is about to put its copy
        next(late)
    finish_all(world, world.remove(0, PAGE), other, world.sweep(0), late)
    world.restart(0)
    finish_all(world, world.read(0, PAGE))


def a_record_vanishes_while_it_is_read(world: World) -> None:
    """The floor that made it useless came too late for the listing."""
    never_yields_between_records(world)
    world.set(1, PAGE)
    frozen = world.write(1)
    next(frozen)
    finish_all(world, world.remove(0, PAGE))
    compaction = world.compact(2)
    while world.nodes[2].generation == 0:
        next(compaction)
    world.now += 1
    world.restart(0)
    reader = world.read(0, PAGE)
    next(reader)
    next(reader)  # it has the names
    finish_all(world, compaction, world.sweep(1), frozen, reader)


def the_store_forgets_its_generation(world: World) -> None:
    """A page is born later than its remover can know."""
    world.put(world.nodes[2], Record(ANY_NAMESPACE, 0, generation=2))
    finish_all(world, world.look(world.nodes[1]), world.sweep(2))
    world.set(1, PAGE)
    finish_all(world, world.write(1), world.remove(0, PAGE), world.read(0, PAGE))


def never_yields_between_records(world: World) -> None:
    world.random.random = lambda: 0.9  # type: ignore[method-assign]


# The story that goes wrong without the rule, or the number of a random one.
NEEDED: dict[str, int | Callable[[World], None]] = {
    "a_record_voids_the_generation_behind": 234,
    "a_remover_lists_after_its_put": 138,
    "a_page_keeps_the_generation_it_was_born_in": another_cluster_still_has_the_page,
    "a_compaction_looks_after_it_knows_the_generation": a_compaction_overlooks_a_record,
    "a_compaction_copies_nothing_void": 79,
    "a_record_ends_two_generations_later": two_compactions_have_one_generation,
    "the_highest_generation_is_kept": the_store_forgets_its_generation,
    "a_vanished_record_means_another_look": a_record_vanishes_while_it_is_read,
}


@pytest.mark.parametrize("rule", Rules._fields)
def test_removed_page_comes_back_without_the_rule(rule: str) -> None:
    story = NEEDED[rule]

    def play(rules: Rules) -> None:
        if isinstance(story, int):
            World(story, rules).run()
        else:
            story(World(0, rules))

    play(Rules())
    with pytest.raises(Old):
        play(Rules()._replace(**{rule: False}))


def test_no_removed_page_comes_back_from_the_store() -> None:
    assert not first_wrong(Rules(), STORIES)
