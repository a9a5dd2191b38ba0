"""SGLang accepts the output of `peercachectl sglang-config`."""

import json
import shlex
import subprocess
import sys
from typing import Any

import pages
import pytest
from controller_node import Shape

from peercache_client.sglang.settings import Settings


def printed(socket_path: Any, *options: str) -> str:
    command = [sys.executable, "-m", "peercached.cli.ctl", "--socket", str(socket_path)]
    result = subprocess.run(
        [*command, "sglang-config", *options], capture_output=True, check=True, text=True
    )
    words = shlex.split(result.stdout.replace("\\\n", ""))  # shlex knows no continued lines
    assert words[-2] == "--hicache-storage-backend-extra-config"
    return words[-1]


def test_nodes_started_with_it_share_pages_in_place(make_node: Any, nodes: Any) -> None:
    made = [
        make_node(i, Shape(), model="line", extra_text=printed(nodes[i].socket_path))
        for i in (0, 1)
    ]
    tokens = pages.tokens("line", 64)
    source = pages.alloc(made[0].pool, 4)
    written = pages.fill(made[0].pool, source, "line")
    assert made[0].backup(tokens, source).completed_tokens == 64
    operation = made[1].prefetch(tokens)
    assert pages.read(made[1].pool, operation.host_indices) == written
    assert made[1].backend._forms["kv"].shared


@pytest.mark.parametrize(
    ("options", "field", "value"),
    [
        (["--tenant", "one"], "tenant", "one"),
        (["--namespace", "staging"], "namespace", "staging"),
        (["--model-revision", "2"], "model_revision", "2"),
        (["--tp-lcm-size", "4", "--huge-pages", "2MiB", "--numa-node", "0"], "zero_copy", True),
    ],
    ids=str,
)
def test_every_option_is_a_key_that_the_backend_knows(
    nodes: Any, options: list[str], field: str, value: object
) -> None:
    config = json.loads(printed(nodes[0].socket_path, *options))
    assert getattr(Settings.parse(config), field) == value
