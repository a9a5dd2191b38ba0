"""The admin socket: permissions, handling of its path, and the errors of its client."""

from __future__ import annotations

import asyncio
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.fake_daemon import FakeSource, listening, serving

from peercached.admin.client import AdminClient, Refused, Unreachable
from peercached.admin.server import AdminServer
from peercached.admin.status import Status


@pytest.fixture
def path() -> Iterator[Path]:
    # tmp_path would be too long: a socket's path has at most 107 bytes.
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder) / "a.admin.sock"


def test_status_arrives_as_the_daemon_filled_it(path: Path) -> None:
    source = FakeSource()
    source.document = {
        "node": {"id": "a", "incarnation": 0xFEED_0000_0000_0001},
        "health": [{"severity": "error", "sentence": "No head.", "remedy": "Start one."}],
        "pool": {"keys": 3, "a_field_of_tomorrow": 5},
        "operations": {"get": {"ok": 2, "absent": 1}, "get_remote": 1},
        "namespaces": [{"id": bytes(range(16)), "epoch": 2}],
    }
    with serving(path, source), AdminClient(str(path)) as client:
        status = client.status()
    assert status.node.id == "a"
    assert status.node.incarnation == "feed000000000001"
    assert status.health[0].remedy == "Start one."
    assert status.pool.keys == 3
    assert status.pool.model_dump()["a_field_of_tomorrow"] == 5
    assert status.operations.get == {"ok": 2, "absent": 1}
    assert status.operations.get_remote == 1
    assert status.namespaces[0].id == bytes(range(16)).hex()


def test_an_empty_document_is_a_status() -> None:
    assert Status().pool.keys == 0
    assert Status.model_validate_json(Status().model_dump_json()) == Status()


def test_the_socket_is_for_its_owner_and_gone_afterwards(path: Path) -> None:
    umask = os.umask(0)
    try:
        with serving(path, FakeSource()):
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
            # The process's own umask is unchanged.
            assert os.umask(0) == 0
        assert not path.exists()
    finally:
        os.umask(umask)


def test_the_folder_is_made_if_it_is_missing(path: Path) -> None:
    deeper = path.parent / "x" / "y" / "a.sock"
    with serving(deeper, FakeSource()):
        assert stat.S_IMODE(deeper.parent.stat().st_mode) == 0o700


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give a folder away")
def test_a_folder_of_another_user_is_not_taken(path: Path) -> None:
    os.chown(path.parent, 65534, 65534)
    with pytest.raises(OSError, match="it belongs to another user"):
        AdminServer(str(path), FakeSource()).make_way()


def test_a_running_daemons_socket_is_not_taken(path: Path) -> None:
    with serving(path, FakeSource()) as first:
        with pytest.raises(OSError, match="running daemon") as caught:
            asyncio.run(AdminServer(str(path), FakeSource()).start())
        assert caught.value.filename == str(path)
        with AdminClient(str(path)) as client:
            client.status()
        assert first


def test_a_dead_daemons_socket_is_taken_over(path: Path) -> None:
    with listening(path):
        pass
    assert path.exists()
    with serving(path, FakeSource()), AdminClient(str(path)) as client:
        client.status()


def test_a_file_in_the_way_is_left_alone(path: Path) -> None:
    path.write_text("precious")
    with pytest.raises(OSError, match="not a socket"):
        asyncio.run(AdminServer(str(path), FakeSource()).start())
    assert path.read_text() == "precious"


def test_a_bad_key_is_the_callers_error_and_a_bug_is_ours(path: Path) -> None:
    source = FakeSource()
    with serving(path, source), AdminClient(str(path)) as client:
        source.error = ValueError("the key has 5000 bytes; 4096 at most")
        with pytest.raises(Refused, match="5000 bytes"):
            client.locate("ns", b"k")
        source.error = KeyError("oops")
        with pytest.raises(Refused, match=r"KeyError.*daemon's log"):
            client.locate("ns", b"k")


def test_a_document_that_does_not_fit_is_a_bug_of_the_daemon(path: Path) -> None:
    source = FakeSource()
    source.document = {"pool": {"keys": "many"}}
    with serving(path, source), AdminClient(str(path)) as client:
        with pytest.raises(Refused, match="ValidationError"):
            client.status()
        # The next call is answered.
        source.document = {}
        client.status()


def test_keys_and_clears_arrive_byte_for_byte(path: Path) -> None:
    source = FakeSource()
    source.located = {"digest": b"\x01" * 16, "holders": [{"node_id": "b", "incarnation": 7}]}
    source.unreached = ["c"]
    with serving(path, source), AdminClient(str(path)) as client:
        found = client.locate("n s", b"\xff\x00")
        assert client.clear("n s") == ["c"]
    assert found.digest == "01" * 16
    assert found.holders[0].incarnation == f"{7:016x}"
    assert source.asked == [("locate", "n s", b"\xff\x00"), ("clear", "n s")]


def test_a_newer_schema_is_version_skew(path: Path) -> None:
    source = FakeSource()
    source.document = {"schema_version": 99}
    with (
        serving(path, source),
        AdminClient(str(path)) as client,
        pytest.raises(Refused, match="another version"),
    ):
        client.status()


def test_missing_socket_dead_daemon_and_hung_daemon_give_different_errors(path: Path) -> None:
    with pytest.raises(Unreachable, match=r"no admin socket.*start peercached"):
        AdminClient(str(path))
    with (
        listening(path),
        AdminClient(str(path), timeout_s=0.2) as client,
        pytest.raises(Unreachable, match=r"within 0.2 s"),
    ):
        client.status()
    with pytest.raises(Unreachable, match="daemon has died"):
        AdminClient(str(path))


def test_a_call_that_hangs_ends_at_the_timeout(path: Path) -> None:
    source = FakeSource()
    source.hangs = True
    with (
        serving(path, source),
        AdminClient(str(path), timeout_s=0.2) as client,
        pytest.raises(Unreachable, match=r"within 0.2 s"),
    ):
        client.locate("ns", b"k")


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
@pytest.mark.parametrize(
    ("folder", "told"), [(0o755, "only root and root may"), (0o750, "join the group root")]
)
def test_permission_denied_names_who_may(path: Path, folder: int, told: str) -> None:
    path.parent.chmod(folder)
    with serving(path, FakeSource()):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                os.setgroups([])
                os.setgid(65534)
                os.setuid(65534)
                AdminClient(str(path))
            except Unreachable as error:
                code = 0 if "may not open" in str(error) and told in str(error) else 2
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
