"""vLLM accepts the output of `peercachectl vllm-config`."""

import json
import subprocess
import sys
from typing import Any

from offload_node import offloading_config
from vllm.config import KVTransferConfig
from vllm.v1.kv_offload.tiering.spec import TieringOffloadingSpec

from peercache_client.vllm.settings import Settings


def test_the_printed_option_makes_a_tier(nodes: Any) -> None:
    socket_path = str(nodes[0].socket_path)
    wishes = {"model_revision": "2", "namespace": "staging", "tenant": "acme"}
    options = [f"--{name.replace('_', '-')}={value}" for name, value in wishes.items()]
    command = [sys.executable, "-m", "peercached.cli.ctl", "--socket", socket_path, "vllm-config"]
    printed = subprocess.run(
        [*command, *options, "--host-memory", "1MiB", "--blocks-per-chunk", "2", "--json"],
        capture_output=True,
        check=True,
        text=True,
    ).stdout
    given = KVTransferConfig(**json.loads(printed))
    assert given.kv_connector == "OffloadingConnector"
    extra = given.kv_connector_extra_config
    assert extra["blocks_per_chunk"] == 2
    spec = TieringOffloadingSpec(offloading_config(extra))
    assert spec.num_chunks == 64, "1 MiB in chunks of 16 KiB"
    manager = spec.get_manager()
    [tier] = manager.secondary_tiers
    assert tier._settings == Settings.parse({"socket_path": socket_path, **wishes})
    manager.shutdown()
