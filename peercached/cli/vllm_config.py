"""`peercachectl vllm-config`: vLLM's launch option for the daemon of this host."""

from __future__ import annotations

import json
import shlex
from typing import Any

import click

from peercached.cli.command import ctl_command
from peercached.cli.connection import Target
from peercached.cli.engine_options import must_be_text, socket_path_for
from peercached.cli.number import Size
from peercached.cli.output import print_json


@ctl_command("vllm-config")
@click.option(
    "--host-memory",
    "host_bytes",
    type=Size(),
    default="8GiB",
    show_default=True,
    help="vLLM's own host memory, for all workers of one engine.",
)
@click.option(
    "--blocks-per-chunk",
    type=click.IntRange(min=1),
    metavar="N",
    help="Blocks of vLLM in one page; the same number on all hosts.",
)
@click.option("--model-revision", metavar="TEXT", help="Keeps revisions of one model name apart.")
@click.option("-n", "--namespace", metavar="TEXT", help="Keeps deployments apart.")
@click.option("--tenant", metavar="TEXT", help="Keeps tenants apart.")
def vllm_config(
    target: Target, as_json: bool, host_bytes: int, blocks_per_chunk: int | None, **wishes: Any
) -> None:
    """Prints the option of vLLM's launch line that makes it share KV pages through this daemon, to
    be pasted into a shell. With --json its value alone:

    --kv-transfer-config "$(peercachectl vllm-config --json)"
    """
    target.must_be_here("vLLM uses the daemon")
    for key, wish in wishes.items():
        if wish is not None:
            must_be_text(f"--{key.replace('_', '-')}", wish)
    config = {
        "kv_connector": "OffloadingConnector",
        "kv_role": "kv_both",
        "kv_connector_extra_config": {
            "spec_name": "TieringOffloadingSpec",
            "cpu_bytes_to_use": host_bytes,
            **({"blocks_per_chunk": blocks_per_chunk} if blocks_per_chunk else {}),
            "secondary_tiers": [
                {
                    "type": "PeerCacheTier",
                    "module_path": "peercache_client.vllm",
                    "socket_path": socket_path_for("vLLM", target),
                    **{key: wish for key, wish in wishes.items() if wish is not None},
                }
            ],
        },
    }
    if as_json:
        print_json(config)
        return
    click.echo(f"--kv-transfer-config {shlex.quote(json.dumps(config))}")
