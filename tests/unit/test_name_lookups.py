"""Addresses of host names."""

import threading

import pytest

from peercached.names import addresses


def test_a_lookup_without_a_thread_fails_at_once_and_the_next_one_asks_again() -> None:
    with pytest.MonkeyPatch.context() as patch:

        def start(_: threading.Thread) -> None:
            raise RuntimeError("can't start new thread")

        patch.setattr(threading.Thread, "start", start)
        with pytest.raises(OSError, match="can't start new thread"):
            addresses("localhost", wait_s=0.1)
    assert {"127.0.0.1", "::1"} & set(addresses("localhost"))
