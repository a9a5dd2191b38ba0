"""The disk tier's cost for `set`, and its benefit for reading evicted pages.

    make bench-write-behind ARGS=DIR

Two daemons, one with a disk tier in DIR, are set the same pages in turns. It reports the median
throughputs and their ratio. Then it gets the pages that the pool has evicted from the disk.
"""

import os
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import click
from harness.cluster import Cluster
from harness.waiting import eventually

from peercache_client import Client

_PAGE_BYTES = 128 << 10
_BATCH_PAGES = 32
_POOL_BYTES = 256 << 20


class _Side:
    def __init__(self, client: Client) -> None:
        self.client = client
        self.region = client.alloc(_PAGE_BYTES * _BATCH_PAGES)
        self.region.view[:] = os.urandom(len(self.region.view))
        self.offsets = [_PAGE_BYTES * i for i in range(_BATCH_PAGES)]

    def set(self, keys: Sequence[bytes]) -> float:
        """GB/s."""
        began = time.perf_counter()
        statuses = self.client.batch_set(keys, self.region, self.offsets, _PAGE_BYTES)
        if not all(statuses):
            raise click.ClickException(f"pages could not be set: {statuses}")
        return len(keys) * _PAGE_BYTES / 1e9 / (time.perf_counter() - began)

    def get(self, keys: Sequence[bytes]) -> tuple[int, float]:
        """(hits, seconds)"""
        began = time.perf_counter()
        statuses = self.client.batch_get(keys, self.region, self.offsets, _PAGE_BYTES)
        return sum(map(bool, statuses)), time.perf_counter() - began


def _keys(turn: int) -> list[bytes]:
    return [f"{turn}/{i}".encode() for i in range(_BATCH_PAGES)]


@click.command()
@click.argument("folder", type=click.Path(file_okay=False, exists=True, path_type=Path))
@click.option("--turns", default=400, show_default=True, help="batches of 32 pages of 128 KiB")
@click.option("--pause-ms", default=20, show_default=True, help="between sets, for the disk")
@click.option("--faults", default="", help="of the disk: disk_write_stall=1,disk_stall_ms=60000")
def main(folder: Path, turns: int, pause_ms: int, faults: str) -> None:
    with (
        tempfile.TemporaryDirectory(dir=folder) as disk,
        Cluster(1, options={"pool-size": _POOL_BYTES}) as without,
        Cluster(
            1,
            options={
                "pool-size": _POOL_BYTES,
                "disk-enabled": True,
                "disk-path": f"{disk}/tier",
                "disk-size": 2 * turns * _BATCH_PAGES * _PAGE_BYTES,
                "faults": faults,
            },
        ) as with_disk,
    ):
        without.start()
        with_disk.start()
        sides = [_Side(Client(str(c[0].socket_path), "bench")) for c in (without, with_disk)]
        rates: list[list[float]] = [[], []]
        for turn in range(turns):
            for side, figures in zip(sides, rates, strict=True):
                figures.append(side.set(_keys(turn)))
            time.sleep(pause_ms / 1000)
        off, on = (statistics.median(figures) for figures in rates)
        click.echo(f"set without a disk  {off:6.2f} GB/s\nset with a disk     {on:6.2f} GB/s")
        click.echo(f"ratio               {on / off:6.1%}")
        daemon = with_disk[0]
        if faults:
            skipped = daemon.status()["disk"]["skipped_full"]
            click.echo(f"{skipped} of {turns * _BATCH_PAGES} pages found the queue full")
            for each in with_disk.daemons:
                each.kill()  # a clean stop would wait for its disk
            return
        eventually(lambda: daemon.status()["disk"]["queued_pages"] == 0, 60, "the disk to finish")
        hits, seconds = 0, 0.0
        for turn in range(turns // 2):
            some, took = sides[1].get(_keys(turn))
            hits, seconds = hits + some, seconds + took
        state = daemon.status()["disk"]
        click.echo(
            f"got from the disk   {hits * _PAGE_BYTES / 1e9 / seconds:6.2f} GB/s, {hits} of "
            f"{turns // 2 * _BATCH_PAGES} pages; {state['skipped_full']} were not written"
        )
        for side in sides:
            side.client.close()


if __name__ == "__main__":
    main()
