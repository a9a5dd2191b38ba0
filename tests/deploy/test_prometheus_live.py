"""A real Prometheus scrapes three real nodes: its alerts fire when one dies, and clear again."""

import json
from pathlib import Path

import pytest
import yaml
from harness.fixtures import MakeCluster
from harness.pages import keys_of
from harness.prometheus import RULES, Prometheus, reason_to_skip
from harness.waiting import eventually

from peercache_bench.process import free_port

BOARD = Path(__file__).parents[2] / "deploy" / "grafana" / "peercached.json"

pytestmark = pytest.mark.skipif(bool(reason_to_skip()), reason=reason_to_skip() or "there is one")


def test_alerts_fire_when_a_node_dies_and_clear_when_it_is_back(make_cluster: MakeCluster) -> None:
    ports = [free_port(f"127.0.0.{place + 1}") for place in range(3)]
    # A long TTL keeps the dead node a member until its peer has reported it as suspect.
    cluster = make_cluster(
        3, each=[{"metrics_port": port} for port in ports], member_ttl_s=6, heartbeat_interval_s=0.5
    )
    targets = [daemon.metrics_address() for daemon in cluster.daemons]
    _, b, c = targets
    keys = keys_of("held by c", 8)
    assert all(cluster[2].attach().set(keys))
    reader = cluster[1].attach()
    assert reader.has(keys)

    with Prometheus(targets) as prometheus:
        eventually(lambda: prometheus.value("sum(up)") == 3, 30)
        eventually(lambda: prometheus.value("sum(peercached_members)") == 9, 30)
        eventually(lambda: not prometheus.firing(), 30, prometheus.why_firing)
        delivered = 'peercached_hits_total{tier="peer"}'
        eventually(lambda: prometheus.value(f'{delivered[:-1]}, instance="{b}"}}') == 8, 30)

        cluster[2].kill()
        assert not any(reader.get(keys))
        eventually(
            lambda: {("PeercachedNodeDown", c), ("PeercachedPeerSuspect", b)} <= prometheus.fired(),
            30,
        )
        # Once the node is out of the view, no peer suspects it any more, but it is still down.
        eventually(
            lambda: prometheus.firing() == {("PeercachedNodeDown", c)}, 60, prometheus.why_firing
        )

        cluster[2].start()
        cluster.wait_complete()
        eventually(lambda: not prometheus.firing(), 30, prometheus.why_firing)

        # Prometheus accepts every query of the board and the rules.
        for rule in (r for g in yaml.safe_load(RULES.read_text())["groups"] for r in g["rules"]):
            prometheus.query(rule["expr"])
        for panel in json.loads(BOARD.read_text())["panels"]:
            for target in panel.get("targets", ()):
                chosen = target["expr"].replace("$__rate_interval", "1m")
                prometheus.query(chosen.replace("$job", ".*").replace("$instance", ".*"))
