"""`peercachectl lmcache-config`: LMCache's launch option for the daemon of this host."""

from __future__ import annotations

import json
import shlex
from typing import Any

import click

from peercached.cli.command import ctl_command
from peercached.cli.connection import Target
from peercached.cli.engine_options import must_be_text, socket_path_for
from peercached.cli.output import print_json


@ctl_command("lmcache-config")
@click.option("--model-revision", metavar="TEXT", help="Keeps revisions of one model name apart.")
@click.option("-n", "--namespace", metavar="TEXT", help="Keeps deployments apart.")
@click.option("--tenant", metavar="TEXT", help="Keeps tenants apart.")
def lmcache_config(target: Target, as_json: bool, **wishes: Any) -> None:
    """Prints the option of LMCache's server that makes it share KV pages through this daemon, to be
    pasted into a shell. With --json its value alone:

    --l2-adapter "$(peercachectl lmcache-config --json)"
    """
    target.must_be_here("LMCache uses the daemon")
    given = {key: wish for key, wish in wishes.items() if wish is not None}
    for key, wish in given.items():
        must_be_text(f"--{key.replace('_', '-')}", wish)
    entry = {
        "type": "plugin",
        "module_path": "peercache_client.lmcache",
        "class_name": "PeerCacheAdapter",
        "adapter_params": {"socket_path": socket_path_for("LMCache", target), **given},
    }
    if as_json:
        print_json(entry)
        return
    click.echo(f"--l2-adapter {shlex.quote(json.dumps(entry))}")
