"""Prometheus metrics equal the counts that a driver makes itself, exactly."""

from collections import Counter
from collections.abc import Sequence

import pytest
from harness.cluster import Daemon
from harness.ctl import ctl
from harness.fixtures import MakeCluster
from harness.pages import Pages, keys_of
from harness.scrape import samples
from harness.waiting import eventually

from peercache_client import Status
from peercached.admin import status as admin

PAGE_BYTES = 65_536


class Driver:
    """A worker on one daemon that counts its requests and their results."""

    def __init__(self, pages: Pages) -> None:
        self._pages = pages
        self._held: set[bytes] = set()  # pages that its daemon holds, as long as nothing is evicted
        self.requests: Counter[str] = Counter()
        self.set_pages: Counter[str] = Counter()
        self.get_pages: Counter[str] = Counter()
        self.bytes: Counter[str] = Counter()
        self.sought: Counter[str] = Counter()
        self._asks = False  # it has called exists, so its gets are no questions any more

    def set(self, keys: Sequence[bytes]) -> None:
        statuses = self._pages.set(keys)
        self.requests["set"] += 1
        self.set_pages.update(word(status) for status in statuses)
        new = {key for key, status in zip(keys, statuses, strict=True) if status} - self._held
        self.bytes["set"] += PAGE_BYTES * len(new)
        self._held |= new

    def get(self, keys: Sequence[bytes]) -> int:
        statuses = self._pages.get(keys)
        self.requests["get"] += 1
        self.get_pages.update(word(status) for status in statuses)
        hits = sum(map(bool, statuses))
        self.bytes["get"] += PAGE_BYTES * hits
        if not self._asks:
            self.sought.update(asked=len(keys), found=hits)
        return hits

    def has(self, keys: Sequence[bytes]) -> None:
        present = self._pages.client.contains(keys)
        self.requests["exists"] += 1
        self._asks = True
        self.sought.update(asked=len(keys), found=sum(map(bool, present)))

    def agrees_with(self, daemon: Daemon) -> None:
        """Compares the counts with the daemon's. This driver must be its only worker."""
        self._pages.client.ping()  # tells how long the last call took
        told = samples(daemon)
        for operation in ("set", "get", "exists"):
            assert told("requests_total", operation=operation) == self.requests[operation]
        for operation, counted in (("set", self.set_pages), ("get", self.get_pages)):
            for status in Status:
                outcome = word(status)
                number = told("pages_total", operation=operation, outcome=outcome)
                assert number == counted[outcome], (operation, outcome)
            assert told("bytes_total", operation=operation) == self.bytes[operation]
        misses = {outcome: n for outcome, n in self.get_pages.items() if outcome != "ok"}
        assert told.each("misses_total", "reason") == misses
        assert sum(told.each("hits_total", "tier").values()) == self.get_pages["ok"]
        assert told("asked_keys_total") == self.sought["asked"]
        assert sum(told.each("found_keys_total", "tier").values()) == self.sought["found"]
        # Every request is in exactly one histogram.
        assert told.total("get_seconds_count") == self.requests["get"]
        assert told("set_seconds_count") == self.requests["set"]
        assert told("exists_seconds_count") == self.requests["exists"]
        assert told.each("client_seconds_count", "op") == self.requests
        for operation in self.requests:
            waited_s = told("client_seconds_sum", op=operation)
            assert waited_s > told.total(f"{operation}_seconds_sum"), (
                "and more than the engine took"
            )


def word(status: Status) -> str:
    return status.name.lower()


def test_hit_miss_and_byte_metrics_match_the_drivers_counts(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(3, pool_size="16MiB", member_ttl_s=30)
    a, b, c = (Driver(cluster[i].attach(page_bytes=PAGE_BYTES)) for i in range(3))
    shared, mine, dead = keys_of("shared", 40), keys_of("mine", 30), keys_of("dead", 20)
    a.set(shared)
    b.set(mine)
    b.set(mine[:10])  # already held
    c.set(dead)

    assert a.get(shared) == 40  # from the pool
    assert b.get(shared) == 40  # from a peer
    assert b.get(shared[:20] + mine + keys_of("nobody has", 9)) == 50  # from both, and misses
    b.has(shared[:5] + keys_of("nobody has", 3))
    for driver, place in ((a, 0), (b, 1), (c, 2)):
        driver.agrees_with(cluster[place])

    told = samples(cluster[1])
    assert told.each("hits_total", "tier") == {"pool": 30, "peer": 60}
    assert told.each("misses_total", "reason") == {"absent": 9}
    assert told("set_held_pages_total") == 10
    assert told.each("get_seconds_count", "source") == {"peer": 2}
    assert told("peer_pages_total", peer="a") == 60
    assert told("peer_bytes_total", peer="a") == 60 * PAGE_BYTES
    assert told("peer_read_seconds_count", peer="a") == 2
    assert told("clients") == 1
    assert told("client_regions") == 1
    holder = samples(cluster[0])
    assert holder("tcp_served_pages_total") == 60
    assert holder("tcp_served_bytes_total") >= 60 * PAGE_BYTES  # with headers
    assert holder.each("get_seconds_count", "source") == {"pool": 1}

    # A holder dies: the first reader finds out, and later reads miss at once.
    cluster[2].kill()
    assert b.get(dead) == 0
    assert b.get(dead) == 0
    b.agrees_with(cluster[1])
    reasons = samples(cluster[1]).each("misses_total", "reason")
    assert set(reasons) <= {"absent", "error", "suspect", "deadline"}
    assert sum(reasons.values()) == 9 + 40
    assert samples(cluster[1])("peer_suspect", peer="c") == 1
    assert samples(cluster[1])("suspects") == 1


def test_workers_that_ask_first_and_get_what_is_there_do_not_hide_the_hit_rate(
    make_cluster: MakeCluster,
) -> None:
    cluster = make_cluster(2)
    prompt = keys_of("prompt", 1000)
    assert all(cluster[0].attach(page_bytes=4096, room_pages=89).set(prompt[:89]))
    engine = cluster[1].attach(page_bytes=4096, room_pages=89)
    found = engine.client.batch_exists(prompt, page_tokens=64)
    assert all(engine.get(prompt[:found])), "so every get is a hit"
    told = samples(cluster[1])
    assert told.each("found_keys_total", "tier")["peer"] == 89
    assert told("asked_keys_total") == 1000
    assert (told("asked_tokens_total"), told("found_tokens_total")) == (64_000, 89 * 64)
    status = admin.Status.model_validate(cluster[1].status())
    assert status.demand.hit_rate == pytest.approx(0.089)
    [namespace] = status.namespaces
    assert namespace.name == "test"
    assert namespace.demand.hit_rate == pytest.approx(0.089)
    shown = "8.9 % of 1,000 keys looked for (found: 89 peer), 5,696 tokens saved"
    assert shown in ctl(cluster[1], "status").output


def test_keys_that_a_larger_pool_would_have_kept_are_counted(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(1, pool_size="8MiB")  # 120 pages of 64 KiB
    pages, keys = cluster[0].attach(page_bytes=PAGE_BYTES), keys_of("turn", 200)
    for at in range(0, len(keys), 10):
        assert all(pages.set(keys[at : at + 10]))
    assert pages.client.batch_exists(keys[:40]) == 0
    told = samples(cluster[0])
    assert told.each("evicted_keys_total", "pool") == {"2": 40, "4": 40}
    assert (
        "0.0 % of 40 keys looked for, 100.0 % with 2x the pool" in ctl(cluster[0], "status").output
    )


def test_a_pool_that_turns_over_counts_every_page_that_comes_and_goes(
    make_cluster: MakeCluster,
) -> None:
    cluster = make_cluster(1, pool_size="8MiB")
    driver = Driver(cluster[0].attach(page_bytes=PAGE_BYTES))
    for turn in range(20):
        driver.set(keys_of(f"turn {turn}", 40))
    told = samples(cluster[0])
    assert told("pool_commits_total") == 800
    assert told("pool_keys") == 800 - told("pool_evictions_total")
    assert told("pool_payload_bytes") == told("pool_keys") * PAGE_BYTES
    assert told.total("pool_class_evictions_total") == told("pool_evictions_total") > 0
    driver.agrees_with(cluster[0])


def test_the_view_its_followers_and_its_masters_are_there(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(3)
    for daemon in cluster.daemons:
        # A ready node has heard from one master. The others answer its next heartbeat.
        eventually(lambda: samples(daemon).each("masters", "answers") == {"yes": 3})  # noqa: B023
        told = samples(daemon)
        assert told.each("members", "state") == {"alive": 3}
        assert told.each("followers", "state") == {"live": 2}
        assert told("suspects") == told("draining") == 0
        assert "error" not in told.each("health_sentences", "severity")
    shares = sum(samples(d)("ring_share_ratio") for d in cluster.daemons)
    assert shares == pytest.approx(1)
    cluster[2].kill()
    eventually(lambda: samples(cluster[0]).each("members", "state") == {"alive": 2})


def test_without_metrics_nobody_listens(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(1, start=False)
    file = cluster.folder / "quiet.toml"
    file.write_text("metrics_enabled = false\n")
    cluster[0].options["config"] = str(file)
    cluster[0].start()
    cluster[0].wait_ready()
    assert cluster[0].status()["node"]["metrics_port"] == 0
