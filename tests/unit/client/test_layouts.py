"""Layouts and their pages: what is refused before the daemon hears of it."""

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from harness.gpu_stand_in import GpuStandIn
from harness.layered_pages import LayeredPages, Shape

from peercache_client import Client
from peercache_client.device import ROWS_MAX, Layout

ROW = Shape().row


@pytest.fixture
def client() -> Iterator[Client]:
    with Client("/nowhere/peercached.sock") as made:
        yield made


@pytest.fixture
def pages(client: Client) -> Iterator[LayeredPages[GpuStandIn]]:
    made = LayeredPages(client, 4, GpuStandIn, Shape())
    yield made
    made.close()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"page_at": 0}, "piece 3 begins at byte 0 of the page and has 512"),
        ({"row_bytes": ROW - 1}, "begins at byte 2048 of the page .* ends at 2047"),
        ({"stage": ROWS_MAX}, "piece 3 has stage 4096: 0 to 4095"),
        ({"at": -1 << 70}, "piece 3 has a number that is negative or too large"),
        ({"rows": 1 << 20}, "at most 65536"),
    ],
)
def test_a_wrong_piece_is_named(
    pages: LayeredPages[GpuStandIn], change: dict[str, Any], said: str
) -> None:
    rows = [*pages.rows[:-1], pages.rows[-1]._replace(**change)]
    with pytest.raises(ValueError, match=said):
        Layout(rows)


def test_pieces_are_rows_of_device_memory(client: Client, pages: LayeredPages[GpuStandIn]) -> None:
    for wrong in (None, tuple(pages.rows[0]), pages.rows[0]._replace(region=None)):  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="piece 0"):
            Layout([wrong])  # type: ignore[list-item]
    host = client.alloc(pages.page_bytes)
    with pytest.raises(ValueError, match="memory of the host"):
        Layout([pages.rows[0]._replace(region=host)])


@pytest.mark.parametrize(
    ("keys", "numbers", "error", "said"),
    [
        (["a"], [-1], ValueError, "page numbers -1 to -1"),
        (["a"], [1 << 32], ValueError, "0 to 4294967295"),
        (["a"], [1.5], TypeError, "float"),
        (["a"], ["1"], TypeError, "str"),
        (["a", "b"], [1], ValueError, "2 keys"),
    ],
)
def test_numbers_and_keys_that_do_not_fit(
    client: Client,
    pages: LayeredPages[GpuStandIn],
    keys: list[str],
    numbers: Sequence[Any],
    error: type[Exception],
    said: str,
) -> None:
    with pytest.raises(error, match=said):
        client.batch_set_device(keys, pages.layout, numbers)


def test_layouts_that_do_not_fit(client: Client, pages: LayeredPages[GpuStandIn]) -> None:
    for wrong in (None, pages.rows[0], [None], [pages.layout, pages.rows]):
        with pytest.raises(TypeError, match="a Layout, or a list with one for each key"):
            client.batch_get_device(["a"], wrong, [0])  # type: ignore[arg-type]
    many = [Layout(pages.rows) for _ in range(ROWS_MAX // 4 + 1)]
    with pytest.raises(ValueError, match="layouts of 4100 pieces: at most 4096"):
        client.batch_get_device(["a"] * len(many), many, range(len(many)))
    pages.regions[0].close()
    with pytest.raises(ValueError, match="of the layout is closed"):
        client.batch_get_device(["a"], pages.layout, [0])
