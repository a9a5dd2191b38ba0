"""A real etcd (Debian: etcd-server) with one member, which a test starts and ends."""

from __future__ import annotations

import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import grpc

from harness.clock import seconds
from harness.cluster import Cluster
from harness.fixtures import MakeCluster
from harness.waiting import eventually
from peercache_bench.process import free_port
from peercached.peer.rpc.certificates import Files
from peercached.proto import etcd_pb2, etcd_pb2_grpc

TTL_REFERENCE_S = 2.0  # etcd grants no less
TTL_S = seconds(TTL_REFERENCE_S)
NODES = b"/peercached/nodes/"
JOINS = b"/peercached/joins/"
_READY = "ready to serve client requests"


def reason_to_skip() -> str:
    """Empty if there is an etcd on this machine."""
    return "" if shutil.which("etcd") else "no etcd here: apt-get install etcd-server"


class Etcd:
    """Its data outlives kill()."""

    def __init__(self, folder: Path, tls: Files | None = None) -> None:
        """`tls`: clients must use TLS, with certificates of that authority."""
        self._folder = folder
        self._tls = tls
        self._log = folder / "etcd.log"
        self.port, self._peer_port = free_port("127.0.0.1"), free_port("127.0.0.1")
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        scheme = "http" if self._tls is None else "https"
        here, peer = f"{scheme}://{self.endpoint}", f"http://127.0.0.1:{self._peer_port}"
        said = self._log.read_text().count(_READY) if self._log.exists() else 0
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [
                    "etcd",
                    "--name=one",
                    f"--data-dir={self._folder / 'etcd'}",
                    f"--listen-client-urls={here}",
                    f"--advertise-client-urls={here}",
                    f"--listen-peer-urls={peer}",
                    f"--initial-advertise-peer-urls={peer}",
                    f"--initial-cluster=one={peer}",
                    "--heartbeat-interval=50",
                    "--election-timeout=500",
                    *self._tls_options(),
                ],
                stdout=log,
                stderr=log,
            )
        # An etcd that is killed before it elects a leader may never elect one again.
        eventually(lambda: self._log.read_text().count(_READY) > said, 30, "etcd is ready")

    def _tls_options(self) -> list[str]:
        if self._tls is None:
            return []
        return [
            "--client-cert-auth=true",
            f"--trusted-ca-file={self._tls.ca}",
            f"--cert-file={self._tls.certificate}",
            f"--key-file={self._tls.key}",
        ]

    def freeze(self) -> None:
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        if self._process is not None:
            self._signal(signal.SIGKILL)
            self._process.wait(seconds(10))
            self._process = None

    def begin_anew(self) -> None:
        """Kills etcd and starts it at the same address without any data."""
        self.kill()
        shutil.rmtree(self._folder / "etcd")
        self.start()

    def keep_backup(self) -> None:
        """Makes the backup for restore_backup(). etcd runs again when this returns."""
        self.kill()
        shutil.copytree(self._folder / "etcd", self._folder / "backup")
        self.start()

    def restore_backup(self) -> None:
        self.kill()
        shutil.rmtree(self._folder / "etcd")
        shutil.copytree(self._folder / "backup", self._folder / "etcd")
        self.start()

    def stamp(self) -> bytes:
        """The value of the key beside those of the nodes: counter and mark of the view."""
        with grpc.insecure_channel(self.endpoint) as channel:
            stub = etcd_pb2_grpc.KVStub(channel)  # type: ignore[no-untyped-call]
            found = stub.Range(etcd_pb2.RangeRequest(key=NODES), timeout=seconds(5.0)).kvs
        return bytes(found[0].value) if found else b""

    def has_nodes(self) -> bool:
        """Whether etcd has any node's key."""
        request = etcd_pb2.RangeRequest(key=NODES + b"0", range_end=NODES + b"~")
        with grpc.insecure_channel(self.endpoint) as channel:
            stub = etcd_pb2_grpc.KVStub(channel)  # type: ignore[no-untyped-call]
            return bool(stub.Range(request, timeout=seconds(5.0)).kvs)

    def has_node(self, node_id: str) -> bool:
        request = etcd_pb2.RangeRequest(key=NODES + node_id.encode())
        with grpc.insecure_channel(self.endpoint) as channel:
            stub = etcd_pb2_grpc.KVStub(channel)  # type: ignore[no-untyped-call]
            return bool(stub.Range(request, timeout=seconds(5.0)).kvs)

    def joins_of(self, node_id: str) -> bytes:
        """The record of a node's joins (peer/membership/etcd/joins.py); empty if there is none."""
        with grpc.insecure_channel(self.endpoint) as channel:
            stub = etcd_pb2_grpc.KVStub(channel)  # type: ignore[no-untyped-call]
            request = etcd_pb2.RangeRequest(key=JOINS + node_id.encode())
            found = stub.Range(request, timeout=seconds(5.0)).kvs
        return bytes(found[0].value) if found else b""

    def put_joins_of(self, node_id: str, value: bytes) -> None:
        """Writes a record of joins, as if the node had joined that often."""
        with grpc.insecure_channel(self.endpoint) as channel:
            kv = etcd_pb2_grpc.KVStub(channel)  # type: ignore[no-untyped-call]
            lease = etcd_pb2_grpc.LeaseStub(channel)  # type: ignore[no-untyped-call]
            granted = lease.LeaseGrant(etcd_pb2.LeaseGrantRequest(TTL=600), timeout=seconds(5.0)).ID
            request = etcd_pb2.PutRequest(key=JOINS + node_id.encode(), value=value, lease=granted)
            kv.Put(request, timeout=seconds(5.0))

    def revoke_lease_of(self, node_id: str) -> None:
        """Does what `etcdctl lease revoke` does. The node's key is gone when this returns."""
        with grpc.insecure_channel(self.endpoint) as channel:
            kv = etcd_pb2_grpc.KVStub(channel)  # type: ignore[no-untyped-call]
            lease = etcd_pb2_grpc.LeaseStub(channel)  # type: ignore[no-untyped-call]
            request = etcd_pb2.RangeRequest(key=NODES + node_id.encode())
            [found] = kv.Range(request, timeout=seconds(5.0)).kvs
            lease.LeaseRevoke(etcd_pb2.LeaseRevokeRequest(ID=found.lease), timeout=seconds(5.0))

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)


def with_etcd(
    make_cluster: MakeCluster, endpoint: str, size: int, *, start: bool = True, **options: Any
) -> Cluster:
    cluster = make_cluster(
        size,
        start=False,
        membership="etcd",
        etcd_endpoints=endpoint,
        member_ttl_s=TTL_REFERENCE_S,
        **options,
    )
    for daemon in cluster.daemons:
        daemon.heads = []
    if start:
        cluster.start()
    return cluster
