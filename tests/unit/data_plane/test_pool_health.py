"""Health of the pool's memory, from the data plane's numbers."""

from unittest.mock import Mock

from peercached.data_plane.pool import PoolStatus


def test_a_pool_that_grows_or_cannot_says_how_large_it_is() -> None:
    say = Mock()
    pool = {"ready_bytes": 5 << 30, "capacity_bytes": 8 << 30, "why_small": ""}
    PoolStatus().say(say, {"pool": pool})
    kind, sentence, _ = say.call_args.args
    assert (kind.code, kind.severity) == ("pool_grows", "info") and "5GiB of 8GiB" in sentence
    PoolStatus().say(say, {"pool": {**pool, "why_small": "no memory"}})
    kind, sentence, remedy = say.call_args.args
    assert (kind.code, kind.severity) == ("pool_small", "warning")
    assert "no memory" in sentence and "lower pool_size" in remedy
    PoolStatus().say(say, {"pool": {**pool, "ready_bytes": 8 << 30}})
    assert say.call_count == 2
