"""Requests to the store: their failures in words, backoff and budget."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Iterator
from datetime import datetime, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from peercached.cold import requests as module
from peercached.cold.format import ENTRY
from peercached.cold.reader import GAP_BYTES, RANGE_BYTES, _ranges
from peercached.cold.requests import Requests, StoreError

SECRET = "hush-hush"


class Refusing:
    """An S3 endpoint that answers everything alike."""

    def __init__(self) -> None:
        self.status, self.body, self.requests = 503, b"", 0
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def answer(self) -> None:
                endpoint.requests += 1
                self.send_response(endpoint.status)
                self.send_header("Content-Length", str(len(endpoint.body)))
                self.send_header("ETag", "one")
                self.end_headers()
                self.wfile.write(endpoint.body)

            do_GET = do_PUT = answer

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[Refusing]:
    one = Refusing()
    for name, value in {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{one.server.server_port}",
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "nobody",
        "AWS_SECRET_ACCESS_KEY": SECRET,
    }.items():
        monkeypatch.setenv(name, value)
    yield one
    one.server.shutdown()
    one.server.server_close()


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (503, "SlowDown", "throttled"),
        (403, "AccessDenied", "denied"),
        (404, "NoSuchBucket", "missing"),
        (500, "InternalError", "other"),
    ],
)
async def test_failure_is_told_with_status_and_remedy_and_makes_us_wait(
    endpoint: Refusing, status: int, code: str, kind: str
) -> None:
    endpoint.status = status
    endpoint.body = f"<Error><Code>{code}</Code><Message>{SECRET}</Message></Error>".encode()
    requests = Requests("s3://bucket/prefix", 100)
    with pytest.raises(StoreError, match=f"reading a failed: {status} {code}") as caught:
        await requests.get("a", 100)
    ((why, remedy),) = requests.failures.values()
    assert caught.value.kind == kind and str(caught.value) == why and remedy
    assert SECRET not in why + remedy
    made = endpoint.requests
    with pytest.raises(StoreError, match=code) as caught:
        await requests.get_range("a", 0, 1)
    assert caught.value.kind == "backoff" and endpoint.requests == made
    with pytest.raises(StoreError):  # goes ahead of the backoff
        await requests.get("a", 1, urgent=True)
    assert endpoint.requests == made + 1
    assert requests.rests and not requests.writes_rest and list(requests.failures) == ["reads"]
    with pytest.raises(StoreError):
        await requests.put("a", b"1")
    assert requests.writes_rest and endpoint.requests == made + 2
    endpoint.status = 200
    await requests.put("a", b"1", urgent=True)
    assert list(requests.failures) == ["reads"], "a write says nothing of reads"


async def test_missing_object_is_no_failure_of_the_store(tmp_path: Path) -> None:
    requests = Requests(f"file://{tmp_path}", 100)
    with pytest.raises(StoreError) as caught:
        await requests.get_range("pages/none", 0, 5)
    assert caught.value.kind == "missing"
    assert not requests.failures and not requests.rests


async def test_foreign_name_that_is_no_utf8_is_shown_with_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "voids").mkdir()
    (tmp_path / "voids" / "a plain foreign name").touch()
    requests = Requests(f"file://{tmp_path}", 100)
    assert await requests.names("voids", "", 10) == ["voids/a plain foreign name"]
    os.mknod(bytes(tmp_path / "voids") + b"/caf\xe9")
    with pytest.raises(StoreError, match="/voids/caf%E9 is no UTF-8"):
        await requests.names("voids", "", 10)
    assert "Rename" in requests.failures["reads"][1]


async def test_nobody_listens(endpoint: Refusing) -> None:
    endpoint.server.shutdown()
    endpoint.server.server_close()
    requests = Requests("s3://bucket/prefix", 100)
    with pytest.raises(StoreError, match="no connection") as caught:
        await requests.names("voids", "", 10)
    assert caught.value.kind == "unreachable"


async def test_listing_under_way_ends_soon_if_the_node_stops(tmp_path: Path) -> None:
    """Its thread would keep the process alive, request after request."""
    requests = Requests(f"file://{tmp_path}", 100)
    made: list[int] = []

    def parts(*of: Any, **how: Any) -> Iterator[list[dict[str, Any]]]:
        for number in range(3):
            made.append(number)
            requests.stop()
            yield [{"path": f"voids/{number}", "last_modified": datetime.now(timezone.utc)}]

    requests._stores["read"] = SimpleNamespace(list=parts)
    with pytest.raises(StoreError):
        await requests.names("voids", "", 10)
    assert made == [0]


async def test_second_writer_of_an_object_leaves_it_as_it_is(tmp_path: Path) -> None:
    requests = Requests(f"file://{tmp_path}", 100)
    assert await requests.put("pages/a", b"first")
    assert not await requests.put("pages/a", b"second")
    assert await requests.get("pages/a", 100) == b"first"


async def test_requests_beyond_the_budget_wait_and_then_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BUDGET_WAIT_S", 0.3)
    requests = Requests(f"file://{tmp_path}", 5)
    began = time.monotonic()
    done = await asyncio.gather(
        *(requests.put(f"pages/{number}", b"x") for number in range(20)), return_exceptions=True
    )
    failed = [one for one in done if isinstance(one, StoreError)]
    assert {one.kind for one in failed} == {"budget"}
    assert 5 <= 20 - len(failed) <= 5 + 5 * (time.monotonic() - began) + 1


def test_url_that_cannot_be_used_is_refused_with_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in ("/proc/none", f"{tmp_path}/no/folder", f"{tmp_path}/file"):
        with pytest.raises(RuntimeError, match=rf"cold_store: file://{path} cannot.*Make that"):
            Requests(f"file://{path}", 1)
    with pytest.raises(RuntimeError, match=r"cold_store: s3:// cannot be used.*Look at the URL"):
        Requests("s3://", 1)


def test_folder_without_rights_has_the_remedy_for_rights() -> None:
    error = OSError("Generic LocalFileSystem error: ... Permission denied (os error 13)")
    assert module._kind_of(error) == "denied"


def entry(number: int, offset: int, length: int) -> bytes:
    return ENTRY.pack(bytes([number]) * 16, number, offset, length)


def test_near_pages_of_an_object_come_with_one_request_of_bounded_size() -> None:
    page = 1 << 20
    near = [entry(n, n * page, page) for n in range(9)]  # one page more than a request may have
    far = entry(9, 9 * page + GAP_BYTES + 1, 100)
    behind = [entry(n, 9 * page + GAP_BYTES + 1 + n, 1) for n in range(200, 204)]
    of = (b"m" * 16, b"n" * 16, b"i" * 16, 3, 0)
    packed = (*of, b"".join([*near, far]), b"".join(behind))
    parts = list(_ranges([packed]))
    assert [(p.start, p.end, len(p.entries)) for p in parts] == [
        (0, RANGE_BYTES, 8),
        (8 * page, 9 * page, 1),
        (9 * page + GAP_BYTES + 1, 9 * page + GAP_BYTES + 101, 1),
    ]
    assert [p.behind for p in parts[:2]] == [None, None]
    ahead = parts[2].behind
    assert ahead is not None
    assert (ahead.start, ahead.end, len(ahead.entries), ahead.ahead) == (
        9 * page + GAP_BYTES + 201,
        9 * page + GAP_BYTES + 205,
        4,
        True,
    )
    *_, last = _ranges([packed], extra_bytes=28)
    assert last.end == parts[-1].end + 28, "the seal of the last page is in the range"
    assert parts[0].path == f"pages/{(b'i' * 16).hex()}/3/{(b'n' * 16).hex()}"


async def test_object_that_is_cut_is_no_reason_to_rest(tmp_path: Path, endpoint: Refusing) -> None:
    folder = Requests(f"file://{tmp_path}", 1000)
    await folder.put("pages/cut", b"short")
    endpoint.status = 416
    for requests in (folder, Requests("s3://bucket/prefix", 1000)):
        with pytest.raises(StoreError) as raised:
            await requests.get_range("pages/cut", 1000, 2000)
        assert raised.value.kind == "cut"
        assert not requests.rests
