"""Stores skip pages that were just loaded, once and for a minute."""

from peercache_client.sglang.loaded_pages import LoadedPages


def test_a_page_is_skipped_once_and_in_its_own_pool() -> None:
    loaded = LoadedPages()
    loaded.add("kv", ["a", "b"])
    assert loaded.take("swa", ["a"]) == [False]
    assert loaded.take("kv", ["a", "c"]) == [True, False]
    assert loaded.take("kv", ["a", "b"]) == [False, True]


def test_a_page_that_no_store_asked_for_is_forgotten() -> None:
    """It may have been evicted from the daemons since, and computed again."""
    now_s = 100.0
    loaded = LoadedPages(clock=lambda: now_s)
    loaded.add("kv", ["old"])
    now_s += 59
    loaded.add("kv", ["new"])
    now_s += 2
    assert loaded.take("kv", ["old", "new"]) == [False, True]


def test_the_number_of_pages_is_bounded() -> None:
    loaded = LoadedPages(pages_max=2)
    loaded.add("kv", ["a", "b", "c"])
    assert loaded.take("kv", ["a", "b", "c"]) == [False, True, True]
