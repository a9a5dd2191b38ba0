"""The settings: see router.example.toml."""

from __future__ import annotations

import sys
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from peercache_client.connector import ConnectorMetadata

STRATEGIES = ("prefix", "round-robin")


@dataclass(frozen=True)
class Node:
    engine: str  # URL
    daemon: str  # URL of its monitoring port


@dataclass(frozen=True)
class Config:
    nodes: dict[str, Node]  # by node_id
    metadata: ConnectorMetadata
    page_bytes: tuple[int, ...]
    host: str = "127.0.0.1"
    port: int = 8000
    strategy: str = "prefix"
    prefix_timeout_ms: int = 50
    tokenize: bool = False
    token_file: str = ""

    @staticmethod
    def read(path: Path) -> Config:
        """ValueError says what is wrong."""
        if sys.version_info >= (3, 11):
            import tomllib
        else:
            import tomli as tomllib
        given = tomllib.loads(path.read_text())
        pages = dict(_table(given, "pages"))
        page_bytes = tuple(pages.pop("page_bytes", ()))
        _known(pages, {field.name for field in fields(ConnectorMetadata)}, "pages")
        nodes = {}
        for name, node in _table(given, "nodes").items():
            _known(node, {"engine", "daemon"}, f"nodes.{name}")
            nodes[name] = Node(node["engine"].rstrip("/"), node["daemon"].rstrip("/"))
        if not nodes:
            raise ValueError("there are no nodes: write [nodes.NODE_ID] with engine and daemon")
        _known(given, {field.name for field in fields(Config)} - {"metadata", "page_bytes"}, "")
        config = Config(
            nodes=nodes, metadata=ConnectorMetadata(**pages), page_bytes=page_bytes, **given
        )
        if config.strategy not in STRATEGIES:
            raise ValueError(f"strategy is {config.strategy!r}: give one of {STRATEGIES}")
        if config.token_file:
            config.token()
        return config

    def token(self) -> str:
        """Read anew each time: it changes with the cluster's secret. ValueError says what is
        wrong."""
        try:
            return Path(self.token_file).read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "is no text"
            raise ValueError(
                f"token_file {self.token_file} cannot be read ({why}): write it with "
                "`peercachectl router-token`"
            ) from error


def _table(given: dict[str, Any], name: str) -> dict[str, Any]:
    table = given.pop(name, {})
    if not isinstance(table, dict):
        raise ValueError(f"{name} is {table!r:.80}: a table [{name}] is wanted")
    return table


def _known(given: dict[str, Any], names: set[str], table: str) -> None:
    unknown = sorted(set(given) - names)
    if unknown:
        where = f"[{table}] has" if table else "there are"
        raise ValueError(f"{where} unknown keys {unknown}: known are {sorted(names)}")
