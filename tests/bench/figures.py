"""Stores the simulator's measurements for docs/performance.md, and plots them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parents[2] / "docs"
FIGURES, PLOT = DOCS / "scaling.json", DOCS / "scaling.svg"

Figures = dict[str, dict[str, dict[str, float]]]  # kind -> number of nodes -> name -> value


def load() -> Figures:
    found: Figures = json.loads(FIGURES.read_text()) if FIGURES.exists() else {}
    return found


def keep(kind: str, found: dict[str, float]) -> None:
    """Stores the figures of one cluster size, and replaces earlier ones of the same kind and
    size."""
    figures = load()
    nodes = str(int(found["nodes"]))
    figures.setdefault(kind, {})[nodes] = {
        name: float(f"{value:.4g}") for name, value in found.items() if name != "nodes"
    }
    for each in figures.values():
        ordered = sorted(each.items(), key=lambda entry: int(entry[0]))
        each.clear()
        each.update(ordered)
    FIGURES.write_text(json.dumps(figures, indent=1) + "\n")


def lines(axes: Any, kind: dict[str, dict[str, float]], title: str, **names: str) -> None:
    nodes = [int(each) for each in kind]
    for name, label in names.items():
        axes.plot(nodes, [each[name] for each in kind.values()], marker="o", label=label)
    axes.set_title(title, fontsize=10)
    axes.set_xlabel("nodes")
    axes.set_xscale("log")
    axes.set_xticks(nodes, [str(each) for each in nodes])
    axes.minorticks_off()
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)


def pyplot() -> Any:
    """matplotlib's, for pictures in SVG. Equal figures make equal files."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "peercached"
    mpl.rcParams["svg.fonttype"] = "none"  # keeps text as text, not as paths
    from matplotlib import pyplot as plt

    return plt


def plot() -> None:
    plt = pyplot()
    figures = load()
    membership, moves = figures["membership"], figures["moves"]
    made, ((joins, crashes, traffic), (least, shares, none)) = plt.subplots(2, 3, figsize=(14, 7))
    lines(
        joins, membership, "all agree after a join, s", join_s="median", join_worst_s="worst"
    )  # fmt: skip
    lines(
        crashes, membership, "all agree after a crash, s",
        crash_s="of a node: median", crash_worst_s="worst",
        master_crash_s="of the first master: median", master_crash_worst_s="worst",
    )  # fmt: skip
    joins.set_ylim(bottom=0)
    crashes.set_ylim(bottom=0)
    lines(
        traffic, membership, "membership at rest, bytes/s",
        member_bytes_s="a member", master_bytes_s="a master",
    )  # fmt: skip
    traffic.set_yscale("log")
    lines(
        least, moves, "records moved by a join, of all there are",
        moved_of_all_records="moved", least_of_all_records="the least possible",
    )  # fmt: skip
    least.set_yscale("log")
    lines(
        shares, moves, "a node's share of the directory, of the mean",
        largest_share_of_mean="largest", smallest_share_of_mean="smallest",
    )  # fmt: skip
    none.set_axis_off()
    made.tight_layout()
    made.savefig(PLOT, metadata={"Date": None})
