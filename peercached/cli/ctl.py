"""`peercachectl`: the operator's commands for the local daemon and its cluster."""

from __future__ import annotations

from typing import Any

import click

from peercached import __version__
from peercached.cli.certs import certs
from peercached.cli.clear import clear
from peercached.cli.completion import completion
from peercached.cli.configuration import config, reload
from peercached.cli.connection import target_from, target_options
from peercached.cli.devices import devices
from peercached.cli.doctor import doctor
from peercached.cli.drain import drain, undrain
from peercached.cli.evict import evict
from peercached.cli.exits import EXPLAINED
from peercached.cli.forget import forget
from peercached.cli.locate import locate
from peercached.cli.nodes import nodes
from peercached.cli.pages import exists, get, put, remove
from peercached.cli.ring import ring
from peercached.cli.sglang_config import sglang_config
from peercached.cli.status import status
from peercached.cli.support_bundle import support_bundle
from peercached.cli.top import top
from peercached.cli.trace import trace
from peercached.cli.workers import workers


@click.group(epilog=EXPLAINED, context_settings={"max_content_width": 100})
@click.version_option(__version__, prog_name="peercachectl", message="%(prog)s %(version)s")
@target_options
@click.pass_context
def main(context: click.Context, /, **options: Any) -> None:
    """Asks and steers the peercached daemon of this host, and others through it (--node).

    The daemon is found through --admin-socket, --socket, --config, PEERCACHED_ variables, or at
    its default place, in this order.
    """
    context.obj = target_from(options)


for _command in (
    status, top, nodes, ring, workers, locate, trace, get, put, exists, remove, evict, clear,
    forget,
    config, reload, drain, undrain, devices, doctor, support_bundle, sglang_config,
    certs, completion,
):  # fmt: skip
    main.add_command(_command)


if __name__ == "__main__":
    main()
