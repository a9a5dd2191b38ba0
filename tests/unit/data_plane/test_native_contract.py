"""The data plane and Python agree: on calls, events, layouts, numbers and configuration keys."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import json
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast, get_args
from unittest.mock import AsyncMock, Mock, call

import pytest
from harness.fake_rows import ROW, WITHDRAW

import peercached
from peercache_client import Status
from peercached import _native
from peercached.config import Config
from peercached.data_plane.make import make_engine
from peercached.directory import layout
from peercached.events import Events
from peercached.hints.envelope import Outcome
from peercached.peer.pins.pins import Pinned, Wish

PACKAGE = Path(peercached.__file__).parent


# --- calls


def parameters(function: ast.FunctionDef) -> list[str]:
    given = function.args
    return [one.arg for one in (*given.posonlyargs, *given.args, *given.kwonlyargs)]


def native_parameters(bound: Any) -> list[str]:
    text = bound.__nb_signature__[0][0].replace("\\", "")  # \0 stands for a default
    text = re.sub(r"ndarray\[[^\]]*\]", "ndarray", text)
    (function,) = ast.parse(f"{text}: ...").body
    assert isinstance(function, ast.FunctionDef)
    return parameters(function)


def declared(body: list[ast.stmt], where: str = "") -> Iterator[tuple[str, ast.FunctionDef]]:
    """Functions and methods of the stub file, properties left out."""
    for statement in body:
        if isinstance(statement, ast.ClassDef):
            yield from declared(statement.body, f"{statement.name}.")
        elif isinstance(statement, ast.FunctionDef) and not statement.decorator_list:
            yield where + statement.name, statement


def test_the_stub_file_declares_the_calls_that_there_are() -> None:
    stub = dict(declared(ast.parse((PACKAGE / "_native.pyi").read_text()).body))
    there: dict[str, Any] = {}
    for name, found in vars(_native).items():
        if isinstance(found, type):
            methods = {n: m for n, m in vars(found).items() if hasattr(m, "__nb_signature__")}
            there |= {f"{name}.{method}": bound for method, bound in methods.items()}
        elif hasattr(found, "__nb_signature__"):
            there[name] = found
    assert stub.keys() == there.keys()
    for name, function in stub.items():
        assert parameters(function) == native_parameters(there[name]), name


# --- events


def test_every_event_reaches_its_handler_with_its_fields() -> None:
    digest = bytes(range(16))
    accepted = Outcome("a", "kv.fetch", "accepted")
    parts = Mock()
    parts.removals.remove = AsyncMock(return_value=(0, b"held", "text"))
    parts.cluster_wide.clear = AsyncMock(return_value=[])
    parts.promotes.ask = AsyncMock(return_value=b"promoted")
    parts.hints.take = AsyncMock(return_value=[accepted])
    parts.cold.fetch = AsyncMock(return_value=b"")
    parts.pins.pin = AsyncMock(return_value=Pinned({digest: 6}, {"full": None}))
    parts.engine.take_events.side_effect = [_native.sample_events(), []]
    node = SimpleNamespace(address=SimpleNamespace(incarnation=9))
    placement = SimpleNamespace(nodes={7: node})
    events = Events(
        parts.engine,
        cast(Any, placement),
        parts.cluster_wide,
        parts.failures,
        parts.connects,
        parts.own_records,
        parts.promotes,
        parts.removals,
        parts.pins,
        parts.hints,
        parts.cold,
    )

    async def drain() -> None:
        events.drain()
        for _ in range(10):
            await asyncio.sleep(0)

    asyncio.run(drain())
    assert {event[0] for event in _native.sample_events()} == events.handlers.keys()
    parts.own_records.moved.assert_called_once_with()
    parts.removals.remove.assert_called_once_with(2 * digest, 2.0, (digest, 5))
    parts.cluster_wide.clear.assert_called_once_with("text", "user 1000")
    (failed,) = parts.failures.failed.call_args_list
    assert failed.args[0] is node and str(failed.args[1]).endswith("text")
    (wish,) = parts.connects.wish.call_args_list
    holder, connect_id, end, closed = wish.args
    assert (holder, connect_id, end, closed) == (7, 3, digest, b"\1\0\0\0")
    parts.promotes.ask.assert_called_once_with(7, digest, 2.0)
    parts.pins.pin.assert_called_once()
    assert parts.pins.pin.call_args.args[0] == Wish(digest, 5, [digest] * 2, 60.0, True, True)
    parts.hints.take.assert_called_once_with(
        b"text", wait=False, namespace="text", digests=[digest]
    )
    assert parts.engine.give_up.call_args_list == []
    parts.engine.answer_removal.assert_called_once_with(1, 0, b"held", "text")
    assert parts.engine.answer.call_args_list == [
        call(1, b""),
        call(1, b"promoted"),
        call(1, b"\6\6full"),
        call(1, b""),
        call(1, b"\0" + json.dumps([accepted.document()]).encode()),
    ]
    parts.cold.fetch.assert_called_once_with(2 * digest, 2.0)


# --- layouts and numbers


def places(packed: struct.Struct) -> list[tuple[int, int]]:
    """(offset, bytes) of each field."""
    found, end = [], 0
    for code in re.findall(r"\d*\w", packed.format.lstrip("<")):
        size = struct.calcsize(f"<{code}")
        if not code.endswith("x"):
            found.append((end, size))
        end += size
    return found


def test_records_have_the_layout_of_the_data_plane() -> None:
    assert places(ROW) == list(_native.RECORD_ROW.values())
    assert ROW.size == layout.ROW_BYTES == _native.ROW_BYTES
    assert layout.DIGEST_BYTES == _native.DIGEST_BYTES
    assert _native.RECORD_ROW["holder"][0] == 2 * layout._HOLDER_AT_U16
    assert (layout.RESIDENT, WITHDRAW) == (_native.RESIDENT, _native.WITHDRAW)
    assert layout.SELF == _native.SELF_HOLDER


def test_page_statuses_have_the_numbers_of_the_data_plane() -> None:
    *statuses, undecided = _native.PAGE_STATUSES
    assert undecided == "undecided"
    assert {one.name: one.value for one in Status if one < 128} == {
        name: number for number, name in enumerate(statuses)
    }


# --- configuration keys


def attributes_of_config(path: Path) -> Iterator[str]:
    """The names in `config.name`, `self._config.name` and the like."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute):
            owner = node.value
            name = getattr(owner, "attr", getattr(owner, "id", ""))
            if name.lstrip("_") == "config" or (name, path.name) == ("self", "schema.py"):
                yield node.attr


def test_the_schema_has_every_key_that_the_data_plane_reads() -> None:
    assert [key for key in _native.CONFIG_KEYS if not hasattr(Config(), key)] == []


def test_somebody_reads_every_key_of_the_schema() -> None:
    read = set(_native.CONFIG_KEYS)
    for path in PACKAGE.rglob("*.py"):
        read.update(attributes_of_config(path))
    assert Config.model_fields.keys() - read == set()


def small(folder: Path) -> Config:
    return Config(
        node_id="n", host="127.0.0.1", socket_path=str(folder / "socket"), pool_size=1 << 20
    )


def test_the_data_plane_knows_every_choice_of_its_keys(tmp_path: Path) -> None:
    tried = set()
    for key in Config.model_fields.keys() & set(_native.CONFIG_KEYS):
        for choice in get_args(Config.model_fields[key].annotation):
            if isinstance(choice, str):
                with contextlib.suppress(RuntimeError):  # "rdma" is known, but this host has none
                    make_engine(small(tmp_path).model_copy(update={key: choice}), 1, bytes(16))
                tried.add(key)
    assert tried == {"verify", "protocol", "disk_sync", "role", "gpu", "kv_events_of"}


def test_a_value_that_the_data_plane_does_not_take_is_refused_with_its_key(tmp_path: Path) -> None:
    config = small(tmp_path)
    for key, value in (("verify", "crc"), ("workers_max", "many"), ("socket_mode", "9")):
        with pytest.raises(ValueError, match=f"^{key}: "):
            make_engine(config.model_copy(update={key: value}), 1, bytes(16))
