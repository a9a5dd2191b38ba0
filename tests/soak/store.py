"""An S3 server behind a proxy that fails (harness/store_proxy.py), beside the hosts of a soak."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path

from harness.netns import Network
from harness.s3 import BUCKET, s3_server
from harness.store_proxy import StoreProxy

ADDRESS = "10.77.0.250"
# Shares of the requests. A node rests for a second or more after a failure, so a tenth of all
# requests would keep it from the store most of the time.
FAULTS = {"cut": 0.004, "throttle": 0.004, "flip": 0.004, "truncate": 0.004}
DELAY_S = 0.005
SIZE = "512MiB"


class Store:
    """It ends with the stack. Daemons that start later find it by their environment."""

    # Pages fill memory and disks soon, and go on to the store.
    page_bytes, pool_size, disk = 32 << 10, "8MiB", {"disk_size": "32MiB"}

    def __init__(self, stack: ExitStack, folder: Path, network: Network | None, seed: int) -> None:
        host, launcher = "127.0.0.1", list[str]()
        if network is not None:
            host, launcher = ADDRESS, network.beside(ADDRESS)
        server = stack.enter_context(s3_server(folder, host, launcher))
        self._proxy = stack.enter_context(
            StoreProxy(server.endpoint, host=host, launcher=launcher, seed=seed)
        )
        os.environ |= server.environment(self._proxy.endpoint)
        self.faults: dict[str, int] = {}  # that there were, by kind
        self.options = {
            "cold_store": f"s3://{BUCKET}/soak",
            "cold_after_uses": 0,
            "cold_size": SIZE,
        }

    def disturb(self) -> None:
        self._proxy.plan(delay_s=DELAY_S, **FAULTS)

    def calm_down(self) -> None:
        self.faults = self._proxy.plan(**dict.fromkeys(FAULTS, 0.0))
