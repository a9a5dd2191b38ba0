"""Daemons that cannot start report why, and do not disturb the others."""

import threading
from pathlib import Path

import pytest
from harness.cluster import Cluster
from harness.fixtures import MakeCluster
from harness.pages import Pages, keys_of


def exits_with(cluster: Cluster, place: int) -> tuple[int, str]:
    daemon = cluster[place]
    daemon.start()
    return daemon.wait_exit(30), daemon.log_text()


def test_node_with_duplicate_id_refuses_to_start_and_names_the_first(
    make_cluster: MakeCluster,
) -> None:
    cluster = make_cluster(2)
    at_head, at_first = keys_of("at the head", 16), keys_of("at the first", 16)
    head, first = cluster[0].attach(), cluster[1].attach()
    assert all(head.set(at_head))
    assert all(first.set(at_first))
    twin = make_cluster(1, start=False)
    twin[0].node_id, twin[0].host, twin[0].heads = "b", "127.0.0.9", [cluster[0].address]
    code, log = exits_with(twin, 0)
    assert code == 1
    assert cluster[1].host in log
    assert "node_id" in log or "node id" in log
    # These first reads open data-plane connections that did not exist before the twin started.
    assert head.has(at_first)
    assert first.has(at_head)
    assert not cluster[1].suspects()


@pytest.mark.skipif(
    any(Path("/sys/class/infiniband").glob("*")), reason="this machine has an RDMA device"
)
def test_rdma_without_a_device_refuses_to_start_and_names_the_choice(
    make_cluster: MakeCluster,
) -> None:
    code, log = exits_with(make_cluster(1, start=False, protocol="rdma"), 0)
    assert code == 1
    assert "this machine has no RDMA device" in log
    assert "auto" in log


def test_a_taken_port_is_named_with_its_key_and_holder(make_cluster: MakeCluster) -> None:
    first, meta, data = make_cluster(1), make_cluster(1, start=False), make_cluster(1, start=False)
    holder = f"process {first[0].pid} "

    def last_line(cluster: Cluster) -> str:
        code, log = exits_with(cluster, 0)
        assert code == 1, log
        return log.splitlines()[-1]

    meta[0].meta_port = first[0].meta_port
    line = last_line(meta)
    assert first[0].address in line
    assert "set meta_port" in line
    assert holder in line
    data[0].data_port = first[0].data_port
    line = last_line(data)
    assert f"{first[0].host}:{first[0].data_port}" in line
    assert "set data_port" in line
    assert holder in line


def test_a_node_whose_ports_or_sockets_are_taken_names_their_holder_and_does_not_join(
    make_cluster: MakeCluster,
) -> None:
    cluster = make_cluster(1)
    first = cluster[0]
    node, before = first.status()["node"], first.status()["membership"]["view_number"]
    taken = {
        "metrics_port": node["metrics_port"],
        "socket_path": first.socket_path,
        "admin_path": first.admin_path,
    }
    for what, value in taken.items():
        other = make_cluster(1, start=False)
        other[0].node_id, other[0].host, other[0].heads = "z", "127.0.0.9", [first.address]
        if what == "metrics_port":
            other[0].options |= {"metrics-host": node["metrics_host"], "metrics-port": value}
        else:
            setattr(other[0], what, value)
        code, log = exits_with(other, 0)
        assert code == 1
        line = log.splitlines()[-1]
        assert str(value) in line
        assert f"set {what.replace('admin_path', 'admin_socket')}" in line
        assert f"process {first.pid}" in line
        assert "new view" not in log.split("view 0")[-1]
    assert first.status()["membership"]["view_number"] == before
    assert " z" not in first.log_text()
    assert all(first.attach().set(keys_of("still there", 4)))


def test_a_pool_larger_than_memory_is_refused_with_the_key_to_change(
    make_cluster: MakeCluster,
) -> None:
    cluster = make_cluster(1, start=False, pool_size="16TiB")
    code, log = exits_with(cluster, 0)
    assert code in (1, 2)
    assert "pool_size" in log


def test_a_stopped_daemon_leaves_no_socket_and_ends_with_0(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(1)
    assert cluster[0].stop() == 0
    assert not cluster[0].socket_path.exists()
    assert not cluster[0].admin_path.exists()


def test_threads_sharing_one_client_get_their_own_answers(make_cluster: MakeCluster) -> None:
    """Many threads share one client, and their answers must not be mixed up."""
    cluster = make_cluster(2)
    shared = cluster[0].attach(page_bytes=4096)
    assert all(shared.set(keys_of("shared", 32)))
    readers: list[Pages] = [cluster[1].attach(page_bytes=4096) for _ in range(4)]
    wrong: list[str] = []

    def ask(number: int) -> None:
        for count in range(50):
            expected = (number + count) % 33
            answered = shared.client.batch_exists(
                keys_of("shared", 32)[:expected] + keys_of("never", 1)
            )
            if answered != expected:
                wrong.append(f"{answered} instead of {expected}")
            assert readers[number].has(keys_of("shared", 8))

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
