"""The chart's cluster secret is made once.

Only Helm's `lookup` decides that: it asks the cluster's API for the Secret. There is no Kubernetes
API server here, so a stand-in answers the two requests of `lookup`. So these tests show what the
chart makes of the answers. They do not show that a real cluster gives these answers.
"""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from harness.helm import Helm, of_kind

from peercached.config.cluster_secret import read_secret

GENERATE = {"clusterSecret": {"generate": True}}
RESOURCES = {
    "kind": "APIResourceList",
    "apiVersion": "v1",
    "groupVersion": "v1",
    "resources": [
        {"name": "secrets", "kind": "Secret", "namespaced": True, "verbs": ["get", "list"]}
    ],
}


@contextmanager
def api_with(secret: dict[str, Any] | None) -> Iterator[str]:
    """The address of an API that has this Secret, or none."""
    path = "/api/v1/namespaces/peercached/secrets/peercached-cluster"
    missing = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound"}

    class Api(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked = self.path.split("?")[0]
            status = 404
            answer: dict[str, Any] = {**missing, "code": 404}
            if asked == "/api/v1":
                status, answer = 200, RESOURCES
            elif asked == path and secret is not None:
                status, answer = 200, secret
            body = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Api)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def made(helm: Helm, *options: str) -> dict[str, Any]:
    [secret] = of_kind(helm.template(GENERATE, *options), "Secret")
    return secret


def made_beside(helm: Helm, there: dict[str, Any] | None) -> dict[str, Any]:
    with api_with(there) as address:
        return made(helm, "--dry-run=server", "--kube-apiserver", address)


def test_a_new_secret_is_random_and_one_that_the_daemon_takes(helm: Helm, tmp_path: Path) -> None:
    first, second = made_beside(helm, None), made_beside(helm, None)
    assert first["data"] != second["data"]
    file = tmp_path / "cluster.secret"
    file.write_bytes(base64.b64decode(first["data"]["cluster.secret"]))
    file.chmod(0o600)
    read_secret(file)
    assert len(file.read_bytes()) == 64


def test_an_upgrade_keeps_the_secret_with_all_that_operators_put_in(helm: Helm) -> None:
    there = made(helm)
    there["data"] = {"cluster.secret": "b25lIHNlY3JldCBvZiBhIGNsdXN0ZXI=", "note": "eA=="}
    assert made_beside(helm, there)["data"] == there["data"]


def test_uninstalling_leaves_the_secret(helm: Helm) -> None:
    assert made(helm)["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}


def test_by_default_the_operator_makes_the_secret(helm: Helm) -> None:
    documents = helm.template({})
    assert not of_kind(documents, "Secret")
    [pod] = of_kind(documents, "DaemonSet")
    volumes = {one["name"]: one for one in pod["spec"]["template"]["spec"]["volumes"]}
    assert volumes["secret"]["secret"]["secretName"] == "peercached-cluster"
