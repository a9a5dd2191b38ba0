"""Foreign text in the log cannot break out of its line."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from peercached.observe import log
from peercached.peer.rpc import wire
from peercached.proto import peer_pb2 as pb

FORGED = "b\n2026-01-01T00:00:00.000Z ERROR peercached: the disk is lost\x1b[2J\u202e\x9b"


@pytest.fixture
def logged() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    before = root.handlers[:], root.level
    yield io.StringIO()
    root.handlers[:], root.level = before


def test_foreign_text_cannot_forge_a_log_line(logged: io.StringIO) -> None:
    log.set_up("info", "text", logged)
    logging.getLogger("peercached.peer").warning("refused %s", FORGED)
    logging.getLogger().handlers[0].flush()
    (line,) = logged.getvalue().splitlines()
    assert line.isprintable()
    assert "refused b\\n2026" in line


def test_a_line_of_json_is_escaped_too(logged: io.StringIO) -> None:
    log.set_up("info", "json", logged)
    logging.getLogger("peercached.peer").warning("refused %s", FORGED)
    logging.getLogger().handlers[0].flush()
    assert json.loads(logged.getvalue())["message"].isprintable()


@pytest.mark.parametrize("field", ["node_id", "host"])
@pytest.mark.parametrize("foreign", ["b\n", "\x1b[2J", "\u202eb", "\x9b"])
def test_unprintable_address_is_refused(field: str, foreign: str) -> None:
    message = pb.NodeAddress(node_id="b", incarnation=1, host="h", peer_port=1, data_port=2)
    setattr(message, field, foreign)
    with pytest.raises(ValueError, match="cannot be shown") as error:
        wire.address_of(message)
    assert str(error.value).isprintable()
