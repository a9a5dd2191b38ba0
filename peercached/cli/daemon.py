"""`peercached`: runs the daemon. `peercached config`: shows or checks what it would run with."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
from pathlib import Path
from typing import Any

import click

from peercached import __version__
from peercached.cli.config_options import config_options, given
from peercached.cli.output import print_json, print_table
from peercached.config import Config, ConfigError, Effective, load
from peercached.observe import log

EXIT_START_FAILED = 1
EXIT_BAD_CONFIG = 2

_log = logging.getLogger("peercached")


@click.group(invoke_without_command=True, context_settings={"max_content_width": 100})
@click.version_option(__version__, prog_name="peercached", message="%(prog)s %(version)s")
@config_options
@click.pass_context
def main(context: click.Context, /, config_file: Path | None, **values: Any) -> None:
    """Runs the daemon through which the SGLang hosts of a cluster share KV-cache pages.

    Exit codes: 0 stopped by SIGTERM or SIGINT, 1 could not start or failed, 2 bad configuration.
    """
    context.obj = (config_file, given(values))
    if context.invoked_subcommand is None:
        sys.exit(_serve(_load_or_exit(config_file, given(values))))


@main.command("config")
@click.option("--check", is_flag=True, help="Only say whether it can work (exit code 0 or 2).")
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
    """Prints the effective configuration and where each value came from."""
    effective = _load_or_exit(config_file or before[0], {**before[1], **given(values)})
    if check:
        if as_json:
            click.echo(json.dumps({"ok": True}))
        else:
            click.echo("The configuration is good.")
        return
    settings = effective.config.model_dump()
    if as_json:
        document = {
            name: {"value": value, "source": effective.sources[name]}
            for name, value in settings.items()
        }
        print_json(document)
        return
    # Values as a file would have them: copy one, and it is a setting.
    rows = [(name, json.dumps(value), effective.sources[name]) for name, value in settings.items()]
    print_table(["key", "value", "from"], rows)


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


def _serve(effective: Effective) -> int:
    # gRPC would print lines of its own beside our log; what goes wrong reaches us as errors anyway.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    import uvloop

    config = effective.config
    log.set_up(config.log_level, config.log_format)
    _log.info("peercached %s starts (pid %d)", __version__, os.getpid())
    for name, source in effective.sources.items():
        if not source.startswith("default"):
            _log.info("%s = %s (%s)", name, getattr(config, name), source)
    return int(uvloop.run(_run_until_stopped(config)))


async def _run_until_stopped(config: Config) -> int:
    stop = asyncio.Event()
    started = False
    task = asyncio.current_task()
    assert task is not None

    def ready() -> None:
        nonlocal started
        started = True
        _log.info(
            "ready: node %s, workers at %s, peers at %s:%d",
            config.node_id,
            config.socket_path,
            config.host,
            config.meta_port,
        )

    def on_signal(name: str) -> None:
        if stop.is_set():
            # Asked twice: the operator has waited long enough for a clean stop.
            _log.warning("%s again: stops at once", name)
            task.cancel()
            return
        _log.info("%s: stops", name)
        stop.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal, number.name)
    try:
        # Here, not above: `peercached config` must work where the data plane cannot be loaded.
        from peercached.daemon import run

        await run(config, stop, ready)
    except asyncio.CancelledError:
        if not stop.is_set():
            raise
        return EXIT_START_FAILED
    except Exception as error:
        return _failed(error, started)
    _log.info("stopped")
    return 0


def _failed(error: Exception, started: bool) -> int:
    """Start-up errors are the operator's to mend: one message. Anything else is ours: all of it."""
    what = "failed" if started else "cannot start"
    if not started and isinstance(error, OSError | RuntimeError | ValueError | ImportError):
        text = str(error)
        if isinstance(error, OSError) and error.filename and error.strerror:
            text = f"{os.fsdecode(error.filename)}: {error.strerror}"
        _log.debug("traceback", exc_info=error)
        click.echo(f"peercached: {what}: {text}", err=True)
    else:
        _log.error("%s", what, exc_info=error)
        click.echo(f"peercached: {what}: {type(error).__name__}: {error}", err=True)
    return EXIT_START_FAILED


if __name__ == "__main__":
    main()
