"""`peercachectl sglang-config`: SGLang's launch options for the daemon of this host."""

from __future__ import annotations

import json
import shlex
from typing import Any, Final

import click

from peercached.cli.command import ctl_command
from peercached.cli.connection import Target
from peercached.cli.engine_options import must_be_text, socket_path_for
from peercached.cli.output import print_json

_OF_HOST_POOLS: Final = ("tp_lcm_size", "huge_pages", "numa_node")


@ctl_command("sglang-config")
@click.option("--model-revision", metavar="TEXT", help="Keeps revisions of one model name apart.")
@click.option("-n", "--namespace", metavar="TEXT", help="Keeps deployments apart.")
@click.option("--tenant", metavar="TEXT", help="Keeps tenants apart.")
@click.option(
    "--tp-lcm-size",
    type=click.IntRange(min=1),
    metavar="N",
    help="Least common multiple of the TP sizes that shall share, with page_head.",
)
@click.option("--huge-pages", type=click.Choice(["2MiB", "1GiB"]), help="For the host pools.")
@click.option(
    "--numa-node", type=click.IntRange(min=0), metavar="N", help="Of the host pools' memory."
)
@click.option("--linker", is_flag=True, help="For SGLang without a host tier (external linker).")
@click.option("--direct", is_flag=True, help='With --linker, for a daemon with gpu = "cuda".')
def sglang_config(target: Target, as_json: bool, linker: bool, direct: bool, **wishes: Any) -> None:
    """Prints the options of SGLang's launch line that make it share KV pages through this daemon,
    to be pasted into a shell. With --json the config alone:

    --hicache-storage-backend-extra-config "$(peercachectl sglang-config --json)"

    --unified-cache-external-linker-config "$(peercachectl sglang-config --linker --json)"
    """
    target.must_be_here("SGLang uses the daemon")
    for key in ("model_revision", "namespace", "tenant"):
        if wishes[key] is not None:
            must_be_text(f"--{key.replace('_', '-')}", wishes[key])
    if linker:
        _print_linker(target, as_json, wishes, {"direct": True} if direct else {})
        return
    if direct:
        raise click.UsageError("--direct is for --linker: HiCache pages pass through host memory")
    config = {
        "backend_name": "peercache",
        "module_path": "peercache_client.sglang",
        "class_name": "PeerCacheStorage",
        "interface_v1": 1,
        "allocator": "shm",
        "hicache_storage_pass_prefix_keys": True,
        "socket_path": socket_path_for("SGLang", target),
        **{key: wish for key, wish in wishes.items() if wish is not None},
    }
    if as_json:
        print_json(config)
        return
    click.echo("--hicache-storage-backend dynamic \\")
    click.echo(f"--hicache-storage-backend-extra-config {shlex.quote(json.dumps(config))}")


def _print_linker(
    target: Target, as_json: bool, wishes: dict[str, Any], more: dict[str, Any]
) -> None:
    for key in _OF_HOST_POOLS:
        if wishes[key] is not None:
            raise click.UsageError(
                f"--{key.replace('_', '-')} is of SGLang's host pools, and with --linker it has "
                "none: leave it out"
            )
    extra = {
        "socket_path": socket_path_for("SGLang", target),
        **more,
        **{key: wish for key, wish in wishes.items() if wish is not None},
    }
    config = {
        "linker": "PeerCacheLinker",
        "linker_module_path": "peercache_client.sglang.linker",
        "linker_extra_config": extra,
    }
    if as_json:
        print_json(config)
        return
    click.echo("--enable-unified-cache-external-linker \\")
    click.echo("--unified-cache-external-linker-backend dynamic \\")
    click.echo(f"--unified-cache-external-linker-config {shlex.quote(json.dumps(config))}")
