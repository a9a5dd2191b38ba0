"""`peercachectl`: output for people, JSON for scripts, and exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from harness.fake_daemon import FakeClient, FakeSource, listening, serving

from peercache_client import Status
from peercached.cli import exits
from peercached.cli.connection import Target
from peercached.cli.ctl import main
from peercached.config.cluster_secret import read_secret
from peercached.peer.rpc.auth import Secret

DOCUMENT = {
    "node": {"id": "a", "incarnation": 5, "version": "0.1.0", "host": "10.0.0.1",
             "meta_port": 31998, "data_port": 31999, "pid": 42, "uptime_s": 3725.0},
    "health": [
        {"severity": "info", "sentence": "Faults are on.", "remedy": "Remove the key faults."},
        {"severity": "error", "sentence": "No head answers.", "remedy": "Start peercached at b."},
    ],
    "pool": {"capacity_bytes": 1 << 30, "used_bytes": 1 << 29, "keys": 12345, "evictions": 7},
    "shard": {"entries": 100, "capacity_entries": 32_000_000, "bytes": 4800, "full": 3},
    "ipc": {"connections": 2},
    "workers": [{"pid": 77, "uid": 1000, "name": "decode-0", "namespace": "llama",
                 "connections": 2, "regions": 1, "region_bytes": 1 << 20, "requests": 1234,
                 "idle_s": 95.2}],
    "gpus": [{"id": "ab" * 16, "name": "H100", "regions": 3, "region_bytes": 1 << 30,
              "copied_bytes": 1 << 31, "why_lost": "unspecified launch failure"}],
    "transport": {"protocol": "rdma", "why": "2 active ports", "rails": [
        {"rail": 0, "device": "mlx5_0", "port": 1, "gid": "10.0.0.1", "gid_index": 3,
         "netdev": "eth2", "mtu": 4096, "rate_gbps": 400.0, "registered_bytes": 1 << 30},
        {"rail": 1, "device": "mlx5_1", "port": 1, "up": False, "why": "port down"}]},
    "transfer": [{"node_id": "b", "engine": "tcp", "channels": 4, "pages": 10, "bytes": 1 << 21,
                  "errors": 1}],
    "membership": {"view_number": 9, "masters": [{"node_id": "b"}], "members": [
        {"node_id": "a", "incarnation": 5, "host": "10.0.0.1", "peer_port": 31998,
         "data_port": 31999, "pool_bytes": 1 << 30, "is_self": True, "ring_share": 0.5},
        {"node_id": "b", "incarnation": 6, "host": "10.0.0.2", "peer_port": 31998,
         "suspect": True, "ring_share": 0.5, "transports": ["rdma"], "protocol": "rdma"}]},
    "departed": [{"node_id": "c", "incarnation": 7, "host": "10.0.0.3", "age_s": 125.0,
                  "lost": True, "why": "it did not answer for 5 s and said no goodbye"}],
    "demand": {"asked": 1000, "found": {"pool": 80, "peer": 9}, "evicted": {"2x": 200, "4x": 200},
               "tokens_found": 5696},
    "namespaces": [{"id": bytes(16), "name": "llama", "epoch": 3, "pool_pages": 12345,
                    "pool_bytes": 1 << 29, "quota_bytes": 1 << 30,
                    "demand": {"asked": 1000, "found": {"pool": 89}, "evicted": {"2x": 200}}}],
    "namespaces_open": 3,
    "followers": [{"node_id": "b", "state": "scan", "behind": 2}],
    "operations": {"get": {"ok": 10, "absent": 2}, "set": {"ok": 0}, "stale_retries": 1,
                   "cut_pages": 64, "cut_us": 90_000_000, "computed_us": 3_000_000,
                   "given_up_pages": 2},
}  # fmt: skip
LOCATED = {
    "namespace": "default", "namespace_id": bytes(16), "epoch": 1, "digest": b"\xab" * 16,
    "owners": [{"node_id": "b", "suspect": True, "answered": False, "error": "deadline"},
               {"node_id": "a", "is_self": True}],
    "holders": [{"node_id": "c", "incarnation": 9, "resident": True, "length": 4, "offset": 8192,
                 "generation": 77}],
    "cached": True,
}  # fmt: skip


class Bench:
    """A fake daemon with both sockets, and the command that uses them."""

    def __init__(self, folder: Path, source: FakeSource, client: FakeClient) -> None:
        self.folder, self.source, self.client = folder, source, client

    def __call__(self, *arguments: str, stdin: bytes | None = None) -> Result:
        return CliRunner().invoke(
            main, ["--socket", str(self.folder / "run" / "d.sock"), *arguments], input=stdin
        )


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


@pytest.fixture
def ctl(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    source, client = FakeSource(), FakeClient({})
    source.document = DOCUMENT
    source.located = LOCATED
    monkeypatch.setattr(Target, "worker", lambda target, namespace: client)
    with serving(folder / "run-admin" / "d.sock", source):
        yield Bench(folder, source, client)


def test_status_starts_with_health_findings_and_remedies(ctl: Bench) -> None:
    result = ctl("status")
    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert lines[:4] == [
        "ERROR   No head answers.",
        "        -> Start peercached at b.",
        "info    Faults are on.",
        "        -> Remove the key faults.",
    ]
    text = result.output
    for part in (
        "a at 10.0.0.1:31998", "up 1 h 2 min", "2 nodes in view 9, kept by b, 1 suspect",
        "512 MiB of 1 GiB used (50.0 %), 12,345 pages, 7 evicted", "3 refused: full",
        "12 pages: 10 ok, 2 absent", "stale retries 1",
        "forecasts  64 pages computed instead: 1 min 30 s to load, 3 s to compute, 2 pages given",
        "b: 10 pages, 2 MiB on 4 channels (tcp), 1 error",
        "8.9 % of 1,000 keys looked for (found: 80 pool, 9 peer), 28.9 % with 2x the pool, ",
        "5,696 tokens saved",
        "pages over rdma, 2 active ports",
        "rail 0     mlx5_0:1 up, on eth2, 400 Gb/s, MTU 4096, GID 3 (10.0.0.1), 1 GiB registered",
        "rail 1     mlx5_1:1 DOWN (port down)",
        "GPU        H100 (abababab), LOST (unspecified launch failure), 3 regions, 1 GiB, "
        "2 GiB copied",
    ):  # fmt: skip
        assert part in text, part
    assert len(lines) <= 24, "one screen"


def test_a_healthy_status_says_so(ctl: Bench) -> None:
    ctl.source.document = {}
    result = ctl("status")
    assert result.output.startswith("Healthy: nothing needs attention.")


def test_status_json_is_the_whole_document(ctl: Bench) -> None:
    document = json.loads(ctl("status", "--json").output)
    assert document["pool"]["keys"] == 12345
    assert document["membership"]["members"][1]["suspect"] is True
    assert document["schema_version"] == 1


def test_nodes_lists_the_view(ctl: Bench) -> None:
    result = ctl("nodes")
    assert "View 9, kept by b:" in result.output
    row = next(line for line in result.output.splitlines() if line.strip().startswith("b "))
    assert "10.0.0.2:31998" in row
    assert "suspect" in row
    assert "c at 10.0.0.3 is gone for 2 min 5 s: it did not answer for 5 s" in result.output
    document = json.loads(ctl("nodes", "--json").output)
    assert (document["view_number"], document["departed"][0]["node_id"]) == (9, "c")


@pytest.mark.parametrize(
    ("severities", "code"), [((), 0), (("info",), 0), (("warning", "info"), 1), (("error",), 2)]
)
def test_status_tells_scripts_how_bad_it_is(
    ctl: Bench, severities: tuple[str, ...], code: int
) -> None:
    ctl.source.document = {"health": [{"severity": one, "sentence": "?"} for one in severities]}
    assert ctl("status").exit_code == 0
    assert ctl("status", "--exit-code").exit_code == code
    assert ctl("status", "--exit-code", "--json").exit_code == code


def test_namespaces_have_size_quota_and_hit_rate(ctl: Bench) -> None:
    result = ctl("namespaces")
    row = next(line for line in result.output.splitlines() if line.strip().startswith("llama"))
    for part in ("12,345", "512 MiB", "1 GiB", "1,000", "8.9 %", "28.9 %", "0" * 32):
        assert part in row
    assert "and 2 more" in result.output
    assert json.loads(ctl("namespaces", "--json").output)[0]["name"] == "llama"


def test_events_are_told_in_order_with_their_time(ctl: Bench) -> None:
    ctl.source.seen = [
        {"number": 1, "at": 1.0, "kind": "joined", "node_id": "b", "text": "at 10.0.0.2:31998"},
        {"number": 2, "at": time.time(), "kind": "lost", "node_id": "b", "text": "No answer."},
    ]
    first, second = ctl("events").output.splitlines()
    assert first.split()[2:5] == ["joined", "b", "at"]
    assert second.endswith("No answer.")
    assert json.loads(ctl("events", "--json", "--since", "60").output)["number"] == 2


def test_workers_lists_attached_processes(ctl: Bench) -> None:
    row = ctl("workers").output.splitlines()[-1]
    assert row.split()[:4] == ["77", "1000", "decode-0", "llama"]
    assert row.split()[-5:-1] == ["1", "min", "35", "s"], "since its last request"
    assert json.loads(ctl("workers", "--json").output)[0]["pid"] == 77
    ctl.source.document = {}
    assert ctl("workers").output == "No worker is attached.\n"


def test_locate_explains_digest_owners_and_holders(ctl: Bench) -> None:
    result = ctl("locate", "some-key", "-n", "llama")
    assert result.exit_code == exits.OK
    assert ctl.source.asked == [("locate", "llama", b"some-key")]
    text = result.output
    assert "ab" * 16 in text
    assert "epoch 1" in text
    assert text.index("did not answer: deadline") < text.index("this node")
    holder = next(line for line in text.splitlines() if line.strip().startswith("c "))
    assert "in the pool" in holder
    assert "8,192" in holder
    assert json.loads(ctl("locate", "k", "--json").output)["holders"][0]["length"] == 4


def test_locate_of_a_key_that_a_silent_owner_may_know_exits_with_3(ctl: Bench) -> None:
    ctl.source.located = {**LOCATED, "holders": []}
    result = ctl("locate", "k")
    assert result.exit_code == exits.UNREACHABLE
    assert "b did not answer for sure, so it may exist all the same" in result.output


def test_locate_of_a_key_that_no_owner_knows_for_sure_exits_with_3(ctl: Bench) -> None:
    owner = {"node_id": "c", "answered": True, "final": False}
    ctl.source.located = {**LOCATED, "owners": [owner], "holders": [], "suspects": []}
    assert ctl("locate", "k").exit_code == exits.UNREACHABLE
    ctl.source.located["owners"] = [owner, {**owner, "node_id": "b", "final": True}]
    assert ctl("locate", "k").exit_code == exits.ABSENT


def test_keys_reach_the_daemon_byte_for_byte(ctl: Bench) -> None:
    result = ctl("locate", "k\udcff\u00e9")
    assert "key        k\\xffé" in result.output
    assert ctl.source.asked == [("locate", "default", b"k\xff\xc3\xa9")]


def test_get_writes_the_page_as_it_is(ctl: Bench) -> None:
    ctl.client.pages[b"k"] = b"\x00\xff\r\n"
    assert ctl("get", "k").stdout_bytes == b"\x00\xff\r\n"
    target = ctl.folder / "out"
    assert ctl("get", "k", "-o", str(target)).exit_code == exits.OK
    assert target.read_bytes() == b"\x00\xff\r\n"
    document = json.loads(ctl("get", "k", "--json").output)
    assert document == {"key": "k", "present": True, "length": 4, "base64": "AP8NCg=="}


def test_get_of_an_absent_key_exits_with_1_and_writes_nothing(ctl: Bench) -> None:
    target = ctl.folder / "out"
    ctl.source.located = {**LOCATED, "owners": [{"node_id": "a", "final": True}]}
    result = ctl("get", "k", "-o", str(target))  # located, but the holder no longer has it
    assert result.exit_code == exits.ABSENT
    assert "its holder did not give it" in result.output
    ctl.source.located = {}
    result = ctl("get", "k", "-o", str(target))
    assert result.exit_code == exits.ABSENT
    assert "nobody has it" in result.output
    assert not target.exists()
    assert json.loads(ctl("get", "k", "--json").output) == {"key": "k", "present": False}


def test_put_sets_a_file_or_standard_input(ctl: Bench) -> None:
    file = ctl.folder / "page"
    file.write_bytes(b"page")
    assert ctl("put", "k", str(file)).output == "Set k: 4 B.\n"
    assert ctl("put", "k2", "-", stdin=b"piped").exit_code == exits.OK
    assert ctl.client.pages == {b"k": b"page", b"k2": b"piped"}


def test_put_that_fails_says_why_and_exits_with_4(ctl: Bench) -> None:
    ctl.client.trouble = Status.no_space
    result = ctl("put", "k", "-", stdin=b"x")
    assert result.exit_code == exits.FAILED
    assert "larger pool_size" in result.output


def test_a_daemon_that_dies_meanwhile_is_unreachable_not_a_miss(ctl: Bench) -> None:
    ctl.client.trouble = Status.no_daemon
    for command in (["put", "k", "-"], ["remove", "k"]):
        result = ctl(*command, stdin=b"x")
        assert result.exit_code == exits.UNREACHABLE
        assert "went away" in result.output


def test_put_of_an_empty_or_missing_file_is_wrong_usage(ctl: Bench) -> None:
    assert ctl("put", "k", "-", stdin=b"").exit_code == exits.USAGE
    assert ctl("put", "k", str(ctl.folder / "absent")).exit_code == exits.USAGE


def test_exists_reports_each_key_and_fails_unless_all_are_present(ctl: Bench) -> None:
    ctl.client.pages.update({b"a": b"1", b"c": b"1"})
    assert ctl("exists", "a", "c").exit_code == exits.OK
    assert ctl("exists", "a", "b", "c").exit_code == exits.UNREACHABLE  # an owner is silent
    ctl.source.located = {}
    result = ctl("exists", "a", "b", "c")
    assert result.exit_code == exits.ABSENT
    assert result.output == "present  a\nabsent   b\npresent  c\n"
    document = json.loads(ctl("exists", "a", "b", "c", "--json").output)
    assert document == {"prefix": 1, "present": {"a": True, "b": False, "c": True}}


def test_non_utf8_key_works_in_every_command_form(ctl: Bench) -> None:
    ctl.client.pages[b"\xff"] = b"1"
    assert ctl("exists", "\udcff").output == "present  \\xff\n"
    assert json.loads(ctl("exists", "\udcff", "--json").output)["present"] == {"\udcff": True}
    assert ctl("remove", "\udcff").exit_code == exits.OK


def test_remove_reports_each_key_removed_or_absent(ctl: Bench) -> None:
    ctl.client.pages[b"a"] = b"1"
    result = ctl("remove", "a", "b")
    assert result.exit_code == exits.ABSENT
    assert result.output == "removed  a\nabsent   b\n"
    assert not ctl.client.pages
    ctl.client.trouble = Status.error
    assert ctl("remove", "a").exit_code == exits.FAILED


def test_clear_needs_a_yes_and_names_unreached_members(ctl: Bench) -> None:
    assert ctl("clear", "-n", "ns").exit_code == exits.USAGE
    assert ctl.source.asked == []
    assert ctl("clear", "-n", "ns", "--yes").exit_code == exits.OK
    ctl.source.unreached = ["c"]
    result = ctl("clear", "-n", "ns", "--yes")
    assert result.exit_code == exits.FAILED
    assert "c could not be reached" in result.output
    assert ctl("clear", "--yes").exit_code == exits.USAGE, "the namespace must be named"


@pytest.mark.parametrize(
    "arguments",
    [["status"], ["nodes"], ["workers"], ["locate", "k"], ["get", "k", "-o", "/dev/null"],
     ["exists", "k"], ["remove", "k"], ["put", "k", "/etc/passwd"], ["clear", "-n", "x", "--yes"]],
)  # fmt: skip
def test_every_command_exits_with_3_when_the_daemon_is_down(
    folder: Path, arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    result = CliRunner().invoke(main, ["--socket", str(folder / "d.sock"), *arguments])
    assert result.exit_code == exits.UNREACHABLE, result.output
    assert "start peercached" in result.output
    assert "Traceback" not in result.output


def test_a_daemon_that_hangs_is_unreachable_after_the_timeout(folder: Path) -> None:
    with listening(folder / "d.admin.sock"):
        result = CliRunner().invoke(
            main, ["status", "--timeout", "0.2", "--admin-socket", str(folder / "d.admin.sock")]
        )
    assert result.exit_code == exits.UNREACHABLE
    assert "did not answer within 0.2 s" in result.output


def test_a_refusal_of_the_daemon_exits_with_4(ctl: Bench) -> None:
    ctl.source.error = ValueError("the key has 5000 bytes; 4096 at most")
    result = ctl("locate", "k")
    assert result.exit_code == exits.FAILED
    assert "5000 bytes" in result.output


def test_the_sockets_come_from_options_file_or_variables(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = folder / "p.toml"
    file.write_text('socket_path = "/f/d.sock"\npool_size = "900000T"\n')
    target = Target(config_file=file)
    # Even with values that the daemon would refuse: the running one may still use older values.
    assert target.socket_path() == "/f/d.sock"
    assert target.admin_path() == "/f-admin/d.sock"
    assert Target(socket="/x/o.sock", config_file=file).admin_path() == "/x-admin/o.sock"
    assert Target(socket="/x/o.sock", admin_socket="/x").admin_path() == "/x"
    file.write_text('socket_path = "/f/d.sock"\nadmin_socket = "/f/a"\n')
    assert target.admin_path() == "/f/a"
    monkeypatch.setenv("PEERCACHED_SOCKET_PATH", "/e/d.sock")
    assert target.socket_path() == "/e/d.sock"
    assert Target().admin_path() == "/e-admin/d.sock"


def test_options_may_stand_before_or_after_the_command(ctl: Bench) -> None:
    result = ctl("status", "--socket", str(ctl.folder / "other.sock"))
    assert result.exit_code == exits.UNREACHABLE
    assert "-admin/other.sock" in result.output


def test_a_file_that_cannot_be_read_is_wrong_usage(folder: Path) -> None:
    result = CliRunner().invoke(main, ["status", "--config", str(folder / "absent.toml")])
    assert result.exit_code == exits.USAGE
    assert "absent.toml" in result.output


def test_secret_names_no_secret_as_the_status_document_does(folder: Path) -> None:
    file = folder / "cluster.secret"
    result = CliRunner().invoke(main, ["secret", "first", str(file), "--json"])
    found = json.loads(result.output)
    assert (found["secret"], found["also"]) == Secret(read_secret(file)).names()
    assert found["secret"] == "none"
    shown = CliRunner().invoke(main, ["secret", "use", str(file)]).output
    assert f"nodes prove secret {found['also'][0]} and also accept no secret." in shown


def test_help_of_every_command_explains_the_exit_codes() -> None:
    for name in main.table:
        result = CliRunner().invoke(main, [name, "--help"])
        own = {
            "devices": "5 pyverbs is not installed",
            "doctor": "1 there are warnings",
            "certs": "4 failed: nothing was overwritten",
            "secret": "4 failed: the file is as it was",
            "router-token": "4 there is no secret",
        }
        expected = own.get(name, "3 a daemon was not reached")
        assert expected in " ".join(result.output.split()), name


def test_the_process_itself_exits_with_these_codes(folder: Path) -> None:
    def code(*arguments: str) -> int:
        return subprocess.run(
            [sys.executable, "-m", "peercached.cli.ctl", *arguments],
            capture_output=True,
            check=False,
        ).returncode

    assert code("status", "--socket", str(folder / "absent.sock")) == exits.UNREACHABLE
    assert code("no-such-command") == exits.USAGE
    assert code("--version") == exits.OK
