"""Runs the router: python -m peercached_router CONFIG."""

from __future__ import annotations

import argparse
import logging
from pathlib import Path

from aiohttp import web

from peercached_router.config import Config
from peercached_router.proxy import Router


def main() -> None:
    parser = argparse.ArgumentParser(prog="peercached_router", description=__doc__)
    parser.add_argument("config", type=Path)
    path: Path = parser.parse_args().config
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    try:
        config = Config.read(path)
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise SystemExit(f"peercached_router: {path}: {error}") from error
    web.run_app(
        Router(config).app(),
        host=config.host,
        port=config.port,
        access_log=None,
        handler_cancellation=True,  # a client that leaves ends the engine's work
    )


if __name__ == "__main__":
    main()
