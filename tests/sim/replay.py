"""Prints a fingerprint of everything that happens in a story. Every run of a seed must give the
same.

    make sim-replay ARGS="JUNK pages 112 planned 7 ..."

It first allocates JUNK objects. Behaviour that depends on memory addresses then differs between
runs with different JUNK.
"""

from __future__ import annotations

import random
import sys
from hashlib import blake2b
from unittest import mock

from peercached.membership import View
from sim import stories
from sim.cluster import SimCluster, SimNode
from sim.members import Members, Node
from sim.net import Net, Work


def fingerprint(kind: str, seed: int) -> str:
    """Covers the time and order of everything scheduled, and every adopted view. That includes
    messages, calls, timeouts, ticks and reads."""
    print_of = blake2b(digest_size=8)
    plain_after, plain_keep, plain_took = Net.after, Members._keep, SimCluster.took

    def after(net: Net, delay_s: float, work: Work) -> None:
        print_of.update(f"{net.now!r} {delay_s!r}\n".encode())
        plain_after(net, delay_s, work)

    def note(node: Node | SimNode, view: View) -> None:
        print_of.update(f"{node.name} {node.address.incarnation} {view.number}\n".encode())

    def keep(cluster: Members, node: Node, view: View) -> None:
        note(node, view)
        plain_keep(cluster, node, view)

    def took(cluster: SimCluster, node: SimNode, view: View) -> None:
        note(node, view)
        plain_took(cluster, node, view)

    with (
        mock.patch.object(Net, "after", after),
        mock.patch.object(Members, "_keep", keep),
        mock.patch.object(SimCluster, "took", took),
    ):
        cluster = stories.KINDS[kind](seed)
    return f"{kind} {seed}: {cluster.net.messages} messages, {print_of.hexdigest()}"


def strew(count: int) -> list[bytearray]:
    """Fragments memory with objects of many sizes, for as long as the caller keeps them."""
    rng = random.Random(count)
    junk = [bytearray(rng.randint(1, 400)) for _ in range(count)]
    rng.shuffle(junk)
    return junk[: count // 2]


def main(arguments: list[str]) -> None:
    junk = strew(int(arguments[0]))
    for kind, seed in zip(arguments[1::2], arguments[2::2], strict=True):
        print(fingerprint(kind, int(seed)), flush=True)
    del junk


if __name__ == "__main__":
    main(sys.argv[1:])
