"""Pages do not come from a node that answers at its meta_port: something bars its data_port, or
loses large packets. The node is suspect until they can come, and no call waits for it meanwhile."""

import re
from collections.abc import Callable

import pytest
from harness.clock import seconds
from harness.cluster import Cluster
from harness.netns import Network
from harness.pages import keys_of
from harness.waiting import eventually

pytestmark = pytest.mark.netns

PAGE = 4096  # so many in one question take more than a packet
PAGES = 64
TIMEOUT_S = 4.0
# Longer than any suspicion that a ping ends.
SUSPECT_S = 5.0

Change = Callable[[Network, int], None]


def said_of_b(cluster: Cluster) -> dict[str, str]:
    """The first node's finding about the second one, if that is suspect."""
    told = [one for one in cluster[0].status()["health"] if one["code"] == "peer_suspect"]
    return next((one for one in told if one["sentence"].startswith("b at ")), {})


def suspect_for_s(cluster: Cluster) -> int:
    found = re.search(r"suspect \(for (\d+) s\)", said_of_b(cluster).get("sentence", ""))
    return int(found[1]) if found else 0


@pytest.mark.parametrize(
    ("breaks", "heals"),
    [
        pytest.param(
            lambda network, port: network.bar("a", "b", port, "prohibit"),
            lambda network, port: network.unbar("a", "b", port, "prohibit"),
            id="rejects",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            lambda network, port: network.mute("b", "a", port),
            lambda network, port: network.unmute("b", "a", port),
            id="is silent",
        ),
        pytest.param(
            lambda network, _: network.narrow("b", 1000),
            lambda network, _: network.narrow("b"),
            id="loses large answers",
        ),
        pytest.param(
            lambda network, _: network.narrow("a", 1000),
            lambda network, _: network.narrow("a"),
            id="loses large questions",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_node_whose_pages_cannot_come_stays_suspect_and_costs_one_call(
    network: Network, hosts: Cluster, breaks: Change, heals: Change
) -> None:
    far, near = keys_of("far", PAGES), keys_of("near", PAGES)
    assert all(hosts[1].attach(page_bytes=PAGE).set(far))
    reader = hosts[0].attach(page_bytes=PAGE, timeout_s=seconds(TIMEOUT_S))
    assert all(reader.set(near))
    eventually(lambda: reader.has(far), 10)
    node = hosts[1].status()["node"]

    breaks(network, node["data_port"])
    eventually(lambda: not any(reader.get(far)), 20)
    address = f"data_port at {network.address('b')}:{node['data_port']}"
    eventually(lambda: address in said_of_b(hosts).get("sentence", ""), 20)
    assert f"port {node['data_port']} of" in said_of_b(hosts)["remedy"]
    reader.calls.forget_longest()
    eventually(lambda: not any(reader.get(far)) and suspect_for_s(hosts) > seconds(SUSPECT_S), 30)
    assert all(reader.get(near))
    reader.calls.check_none_waited()

    heals(network, node["data_port"])
    eventually(lambda: reader.has(far), 30, "its pages are hits again")
    eventually(lambda: not said_of_b(hosts), 10)
