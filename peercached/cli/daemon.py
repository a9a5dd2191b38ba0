"""`peercached`: runs the daemon. `peercached config`: shows or checks its configuration."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import resource
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from peercached import __version__
from peercached.cli.config_options import config_options, given
from peercached.cli.output import print_json, print_table
from peercached.cli.output_errors import OutputErrorsGroup
from peercached.config import Config, ConfigError, Effective, load
from peercached.config.memory import available_bytes, too_little_available
from peercached.config.own_host import NoOwnHost
from peercached.config.paths import may_make
from peercached.error_text import error_text
from peercached.news import Event
from peercached.observe import log
from peercached.service.settings import ConfigChanged, Settings
from peercached.service.signals import Reloads, Stop, handle_signals
from peercached.service.stopping import exit_now
from peercached.service.supervised import Supervised

EXIT_START_FAILED = 1
EXIT_BAD_CONFIG = 2
OPEN_FILES = 1 << 20

_log = logging.getLogger("peercached")


@click.group(
    "peercached",
    cls=OutputErrorsGroup,
    failed=EXIT_START_FAILED,
    invoke_without_command=True,
    context_settings={"max_content_width": 100},
)
@click.version_option(__version__, prog_name="peercached", message="%(prog)s %(version)s")
@config_options
@click.pass_context
def main(context: click.Context, /, config_file: Path | None, **values: Any) -> None:
    """Runs the daemon of this host, which shares KV-cache pages with the other hosts of a cluster.

    SIGTERM first hands warm pages to peers (stop_drain_s), SIGINT does not. A second signal stops
    the daemon at once. SIGHUP reads the configuration again.

    Exit codes: 0 stopped by SIGTERM or SIGINT, 1 could not start or failed, 2 bad configuration.
    """
    options = given(values)
    context.obj = (config_file, options)
    if context.invoked_subcommand is None:
        effective = _load_or_exit(config_file, options)
        sys.exit(_serve(effective, lambda: load(config_file, os.environ, options)))


@main.command("config")
@click.option(
    "--check",
    is_flag=True,
    help="Only check it. Exit codes: 0 good, 1 good but cannot start now, 2 bad.",
)
@click.option("--json", "as_json", is_flag=True, help="JSON: {key: {value, source}}.")
@config_options
@click.pass_obj
def show_config(
    before: tuple[Path | None, dict[str, Any]],
    /,
    config_file: Path | None,
    check: bool,
    as_json: bool,
    **values: Any,
) -> None:
    """Prints the effective configuration, and the source of each value."""
    effective = _load_or_exit(config_file or before[0], {**before[1], **given(values)})
    settings = Settings(effective, lambda: effective)
    warnings = []
    try:
        settings.settle_host()
    except NoOwnHost as error:
        warnings.append(str(error))
    if check:
        warnings += _hindrances(settings.config)
        if as_json:
            click.echo(json.dumps({"ok": True, "warnings": warnings}))
        else:
            click.echo("The configuration is good.")
            for warning in warnings:
                click.echo(f"It could not start now: {warning}.")
        sys.exit(EXIT_START_FAILED if warnings else 0)
    for warning in warnings:
        click.echo(f"peercached: {warning}", err=True)
    values = settings.config.model_dump()
    if as_json:
        document = {
            name: {"value": value, "source": settings.sources[name]}
            for name, value in values.items()
        }
        print_json(document)
        return
    # Print values as in a file, so that a copied line is a valid setting.
    rows = [(name, json.dumps(value), settings.sources[name]) for name, value in values.items()]
    print_table(["key", "value", "from"], rows)


def _hindrances(config: Config) -> list[str]:
    """The reasons, on this host and at this moment, why the daemon could not start."""
    from peercached.admin.client import Unreachable, check_socket

    sockets = {"socket_path": config.worker_socket, "admin_socket": config.admin_socket}
    found = [
        f"{key} = {path}: this user cannot write its folder; name one that it can write"
        for key, path in sockets.items()
        if path and not may_make(path)
    ]
    with contextlib.suppress(Unreachable):
        check_socket(config.admin_socket, "admin socket", "admin_socket")
        return found  # the daemon runs, and has its memory already
    return [*found, *filter(None, [too_little_available(config, available_bytes())])]


def _load_or_exit(config_file: Path | None, options: dict[str, Any]) -> Effective:
    try:
        return load(config_file, os.environ, options)
    except ConfigError as error:
        count = len(error.problems)
        things = "a problem" if count == 1 else f"{count} problems"
        click.echo(f"peercached: the configuration has {things}:", err=True)
        for problem in error.problems:
            click.echo(f"  {problem}", err=True)
        sys.exit(EXIT_BAD_CONFIG)


def _serve(effective: Effective, read: Callable[[], Effective]) -> int:
    # gRPC would print its own lines into our log. Its errors reach us as exceptions anyway.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    # The names in etcd_endpoints, too, are asked of the system's resolver: /etc/hosts first.
    os.environ.setdefault("GRPC_DNS_RESOLVER", "native")
    import uvloop

    _take_open_files()
    settings = Settings(effective, read)
    settings.news.read_by(LogKeys())
    log.set_up(settings.config.log_level, settings.config.log_format)
    _log.info("peercached %s starts (pid %d)", __version__, os.getpid())
    for name, source in effective.sources.items():
        if not source.startswith("default"):
            _log.info("%s = %s (%s)", name, getattr(settings.config, name), source)
    return int(uvloop.run(_run_until_stopped(settings)))


class LogKeys:
    """Acts on reloads until all parts of the node are built (reactions.py)."""

    def take(self, event: Event) -> None:
        if isinstance(event, ConfigChanged):
            log.set_up(event.config.log_level, event.config.log_format)


def _take_open_files() -> None:
    """Raises the limit of open files. The soft limit (often 1024) is for programs that use
    select(). With it, a stranger's connections could take the files that peers and workers need."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


async def _run_until_stopped(settings: Settings) -> int:
    stop = Stop()
    service = Supervised(settings)
    task = asyncio.current_task()
    assert task is not None
    service.heart.start()
    handle_signals(stop, task, Reloads(service))
    try:
        # Import here: `peercached config` must work even if the native engine cannot be loaded.
        from peercached.run import run

        await run(settings, stop, service)
    except asyncio.CancelledError:
        if not stop.asked.is_set():
            raise
        return EXIT_START_FAILED
    except Exception as error:
        return _failed(error, service.started)
    finally:
        service.heart.stop()
    _log.info("stopped")
    exit_now(0)


def _failed(error: Exception, started: bool) -> int:
    """A start-up error is one message for the operator. Any other error is a bug, with a
    traceback."""
    what = "failed" if started else "cannot start"
    log.flush()  # or older lines would follow
    if not started and isinstance(error, OSError | RuntimeError | ValueError | ImportError):
        _log.debug("traceback", exc_info=error)
        click.echo(f"peercached: {what}: {error_text(error)}", err=True)
    else:
        _log.error("%s", what, exc_info=error)
        click.echo(f"peercached: {what}: {type(error).__name__}: {error}", err=True)
    return EXIT_START_FAILED


if __name__ == "__main__":
    main()
