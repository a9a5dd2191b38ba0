"""The expected bytes of a page, computed from its key alone.

A page is a window of one large random block, at an offset that its key determines. Every 4 KiB
begin with an 8-byte stamp of (key, length, position). So

- every word depends on key and position. A page of another key, a shifted page, and a page with
  a piece of another one all differ from it within 4 KiB;
- making a page is one copy, and checking it one comparison, at the speed of memory. The check
  must not slow down the replay.
"""

import functools
import hashlib

PAGE_BYTES_MAX = 16 << 20

_STAMP_BYTES = 8
_STAMP_EVERY_BYTES = 4096
_WINDOW_STARTS = 1 << 24


@functools.cache
def _random_block(size: int) -> memoryview:
    """Takes 75 ms of processor time, so all workers of a process share it. Every process must get
    the same block with any Python. SHAKE is a standard."""
    return memoryview(hashlib.shake_128(b"peercached demo content").digest(size))


class Content:
    """Makes and checks pages of up to `page_bytes_max` bytes. Not thread safe."""

    def __init__(self, page_bytes_max: int = PAGE_BYTES_MAX) -> None:
        if not 0 < page_bytes_max <= PAGE_BYTES_MAX:
            raise ValueError(f"page_bytes_max is {page_bytes_max}: give 1..{PAGE_BYTES_MAX}")
        self._page_bytes_max = page_bytes_max
        rounded = -(-page_bytes_max // _STAMP_BYTES) * _STAMP_BYTES
        self._block = _random_block(_WINDOW_STARTS + rounded)
        self._scratch = bytearray()

    def page(self, key: bytes, length: int) -> bytearray:
        """The page of this key, in a new buffer."""
        page = bytearray(length)
        self.write(key, memoryview(page))
        return page

    def write(self, key: bytes, page: memoryview) -> None:
        """Fills `page` (bytes, contiguous) with the expected content for this key."""
        length = len(page)
        if not 0 < length <= self._page_bytes_max:
            raise ValueError(f"page of {length} bytes: give 1..{self._page_bytes_max}")
        stamp_count = -(-length // _STAMP_EVERY_BYTES)
        name = key + length.to_bytes(8, "little")
        seed = hashlib.shake_128(name).digest(8 + stamp_count * _STAMP_BYTES)
        start = int.from_bytes(seed[:8], "little") % _WINDOW_STARTS
        page[:] = self._block[start : start + length]
        stamps = memoryview(seed)[8:]
        whole_bytes = length - length % _STAMP_BYTES
        words = page[:whole_bytes].cast("Q")[:: _STAMP_EVERY_BYTES // _STAMP_BYTES]
        words[:] = stamps[: len(words) * _STAMP_BYTES].cast("Q")
        if len(words) < stamp_count:  # the end of the page cuts off the last stamp
            page[whole_bytes:] = stamps[-_STAMP_BYTES:][: length - whole_bytes]

    def mismatch(self, key: bytes, page: memoryview) -> str | None:
        """None if every byte is right, else where and how the page differs."""
        if len(self._scratch) != len(page):
            self._scratch = bytearray(len(page))
        self.write(key, memoryview(self._scratch))
        # `==` on memoryviews compares item by item; startswith is one memcmp.
        if self._scratch.startswith(page):
            return None
        wrong = [
            i for i, (want, got) in enumerate(zip(self._scratch, page, strict=True)) if want != got
        ]
        return (
            f"page {key!r} of {len(page)} bytes: {len(wrong)} bytes are wrong, "
            f"the first at {wrong[0]} (is {page[wrong[0]]:#04x}, "
            f"must be {self._scratch[wrong[0]]:#04x}), the last at {wrong[-1]}"
        )
