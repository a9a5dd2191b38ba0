"""The published workloads of other systems, with our figures beside theirs.

    make bench-shapes                             all; several minutes, as root
    make bench-shapes ARGS="--only agents"        one; --quick: a small part of it

The daemons are real, and so are the pages: every byte that an engine gets is compared. The engines
are stand-ins (shape/stand_in.py). Their figures are from their machines, so only ratios and hit
rates compare. Keeps the figures in docs/shapes.json, if all of a shape was measured.
"""

from __future__ import annotations

import json
import time

import click
from harness.netns import reason_to_skip

from bench.figures import DOCS
from bench.shape import agents, disk, documents, one_pool, prefixes
from bench.shape.result import Result, Shape

FIGURES = DOCS / "shapes.json"
SHAPES = {
    "agents": agents.SHAPE,
    "prefixes": prefixes.SHAPE,
    "one-pool": one_pool.SHAPE,
    "disk": disk.SHAPE,
    "documents": documents.SHAPE,
}


def show(shape: Shape, result: Result, took_s: float) -> None:
    print(f"\n{shape.title}\n  from {shape.source}\n  scaled: {shape.scaled}")
    width = max(len(figure.name) for figure in result.figures)
    for figure in result.figures:
        print(f"  {figure.name:<{width}}  ours: {figure.ours}")
        if figure.published:
            print(f"  {'':<{width}}  published: {figure.published}")
    print(f"  {result.gain} ({took_s:.0f} s)", flush=True)


def keep(name: str, shape: Shape, result: Result) -> None:
    stored = json.loads(FIGURES.read_text()) if FIGURES.exists() else {}
    stored[name] = {
        "source": shape.source,
        "scaled": shape.scaled,
        "figures": [figure._asdict() for figure in result.figures],
        "gain": result.gain,
    }
    FIGURES.write_text(json.dumps(stored, indent=1, sort_keys=True) + "\n")


@click.command()
@click.option("--only", multiple=True, type=click.Choice(list(SHAPES)), help="Only this shape.")
@click.option("--quick", is_flag=True, help="A few seconds for each, for tests. Stores nothing.")
def main(only: tuple[str, ...], quick: bool) -> None:
    reason = reason_to_skip()
    for name in only or SHAPES:
        if SHAPES[name].has_links and reason:
            print(f"\n{name}: left out, because {reason}")
            continue
        began = time.monotonic()
        result = SHAPES[name].measure(quick)
        show(SHAPES[name], result, time.monotonic() - began)
        if not quick:
            keep(name, SHAPES[name], result)


if __name__ == "__main__":
    main()
