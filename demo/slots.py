"""The bytes that a page takes in a pool: it has a header, and begins at a multiple of 4 KiB."""

_HEADER_BYTES = 64
_ALIGN_BYTES = 4096


def slot_bytes(page_bytes: int) -> int:
    return -(-(_HEADER_BYTES + page_bytes) // _ALIGN_BYTES) * _ALIGN_BYTES
