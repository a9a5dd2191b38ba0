"""`peercachectl`: evict, config, reload, trace, top, completion, support-bundle, --node."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from click.testing import CliRunner, Result
from harness.fake_daemon import FakeSource, serving

from peercached import __version__
from peercached.admin.calls import CALLS, Refusal
from peercached.admin.client import AdminClient, Refused
from peercached.cli import exits, redact
from peercached.cli.ctl import main
from peercached.proto import admin_pb2 as pb


class FakeRelay:
    """A relay with two members: "b" has a status, any other refuses."""

    async def ask(self, node_id: str, method: str, packed: bytes, left_s: float) -> bytes:
        if node_id == "b" and method == "Status":
            return pb.StatusReply(json='{"node": {"id": "b"}}').SerializeToString()
        raise Refusal(grpc.StatusCode.NOT_FOUND, f"there is no member {node_id!r}: there are a, b")


class Bench:
    def __init__(self, folder: Path, source: FakeSource) -> None:
        self.folder, self.source = folder, source

    def __call__(self, *arguments: str) -> Result:
        return CliRunner().invoke(
            main, ["--socket", str(self.folder / "run" / "d.sock"), *arguments]
        )


@pytest.fixture
def ctl() -> Iterator[Bench]:
    with tempfile.TemporaryDirectory() as name:
        source = FakeSource()
        with serving(Path(name) / "run-admin" / "d.sock", source, FakeRelay()):
            yield Bench(Path(name), source)


def test_every_command_has_json() -> None:
    for name, command in main.load_all().items():
        assert any("--json" in option.opts for option in command.params), name


def test_another_node_is_asked_through_this_one(ctl: Bench) -> None:
    assert json.loads(ctl("status", "--node", "b", "--json").output)["node"]["id"] == "b"
    assert json.loads(ctl("--node", "b", "status", "--json").output)["node"]["id"] == "b"
    result = ctl("--node", "zz", "status")
    assert result.exit_code == exits.FAILED
    assert "there is no member 'zz': there are a, b" in result.output


def test_local_commands_refuse_another_node(ctl: Bench) -> None:
    for command in (
        ["get", "k"],
        ["doctor"],
        ["devices"],
        ["sglang-config"],
        ["vllm-config"],
        ["lmcache-config"],
    ):
        result = ctl("--node", "b", *command)
        assert result.exit_code == exits.USAGE, command
        assert "run it on that node" in result.output


def test_evict_takes_keys_or_bytes_or_all_and_nothing_else(ctl: Bench) -> None:
    ctl.source.evicted = (3, 3 << 20)
    said = "Evicted 3 pages (3 MiB) from the pool of here.\n"
    assert ctl("evict", "a", "b", "-n", "ns").output == said
    document = json.loads(ctl("evict", "--bytes", "1MiB", "--json").output)
    assert document == {"node_id": "here", "pages": 3, "bytes": 3 << 20}
    assert ctl("evict", "--all", "--yes").exit_code == exits.OK
    assert ctl.source.asked == [
        ("evict", "ns", [b"a", b"b"], 0, False),
        ("evict", "", [], 1 << 20, False),
        ("evict", "", [], 0, True),
    ]  # fmt: skip
    for wrong in ([], ["k", "--all", "--yes"], ["--bytes", "x"], ["--bytes", "1m", "--all"]):
        assert ctl("evict", *wrong).exit_code == exits.USAGE, wrong
    assert ctl("evict", "--all").exit_code == exits.USAGE, "asks before it empties the pool"
    ctl.source.evicted = (0, 0)
    assert ctl("evict", "k").exit_code == exits.ABSENT


def test_config_shows_the_daemons_own(ctl: Bench) -> None:
    ctl.source.settings = {"max_masters": {"value": 7, "source": "file /p.toml:3", "live": False}}
    assert json.loads(ctl("config", "--json").output)["max_masters"]["value"] == 7
    row = ctl("config").output.splitlines()[-1]
    assert row.split() == ["max_masters", "7", "file", "/p.toml:3"]


def test_reload_reports_applied_pending_and_invalid_keys(ctl: Bench) -> None:
    ctl.source.reloaded = (["log_level"], ["max_masters"], [])
    result = ctl("reload")
    assert result.exit_code == exits.OK
    assert result.output == "In force now: log_level.\nIn force after a restart: max_masters.\n"
    ctl.source.reloaded = ([], [], ["max_masters = 0: is too small"])
    result = ctl("reload")
    assert result.exit_code == exits.FAILED
    assert "Not reloaded: max_masters = 0: is too small" in result.output


def test_trace_shows_each_step_with_its_duration(ctl: Bench) -> None:
    ctl.source.traced = {
        "digest": "ab" * 16, "length": 131072, "outcome": "ok", "total_us": 12345.6,
        "steps": [
            {"name": "pool", "at_us": 1.0, "took_us": 2.5, "outcome": "absent"},
            {"name": "control plane", "at_us": 4.0, "took_us": 900.0, "node_id": "c",
             "outcome": "ok"},
            {"name": "owner", "at_us": 9.0, "took_us": 800.0, "node_id": "b", "outcome": "ok",
             "within": True},
            {"name": "read", "at_us": 905.0, "took_us": 11000.0, "node_id": "c", "outcome": "ok",
             "transport": "rdma"},
        ],
    }  # fmt: skip
    result = ctl("trace", "k", "-n", "ns")
    assert result.exit_code == exits.OK
    assert ctl.source.asked == [("trace", "ns", b"k")]
    text = result.output
    assert "result  ok after 12.3 ms" in text
    assert "128 KiB" in text
    read = next(line for line in text.splitlines() if line.startswith("read"))
    assert read.split() == ["read", "905.0", "us", "11.0", "ms", "c", "ok", "over", "RDMA"]
    assert json.loads(ctl("trace", "k", "--json").output)["steps"][2]["within"] is True
    ctl.source.traced = {"outcome": "absent"}
    assert ctl("trace", "k").exit_code == exits.ABSENT


def test_top_gives_a_line_of_json_per_interval(ctl: Bench) -> None:
    ctl.source.document = {
        "node": {"id": "a", "incarnation": 1, "uptime_s": 9.0},
        "operations": {"get": {"ok": 5, "absent": 5}},
        "transfer": [{"node_id": "b", "engine": "tcp"}],
        "health": [{"severity": "error", "sentence": "No head answers."}],
    }
    lines = ctl("top", "--json", "--interval", "0.1", "--count", "2").output.splitlines()
    assert [json.loads(line)["node"] for line in lines] == ["a", "a"]
    text = ctl("top", "--interval", "0.1", "--count", "1").output
    for part in ("a  up 9 s", "No head answers.", "from peers", "read from", "b"):
        assert part in text


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script_that_asks_peercachectl(shell: str) -> None:
    script = CliRunner().invoke(main, ["completion", shell]).output
    assert "_PEERCACHECTL_COMPLETE" in script


def test_the_table_of_commands_says_what_their_help_says() -> None:
    for name, command in main.load_all().items():
        assert command.name == name
        first = " ".join((command.help or "").split()).split(". ")[0].rstrip(".")
        assert main.table[name] == f"{first}.", name
    shown = CliRunner().invoke(main, ["--help"]).output
    assert "..." not in shown.split("Commands:")[1], "no line is cut"


def test_completion_loads_no_models_of_documents() -> None:
    """Importing those takes half a second, and a shell waits for each completion."""
    code = (
        "import sys; from peercached.cli.ctl import main\n"
        "try: main(prog_name='peercachectl')\n"
        "finally: print(sorted(m for m in sys.modules if m in ('pydantic', 'grpc', 'asyncio')))"
    )
    words = {"COMP_WORDS": "peercachectl ", "COMP_CWORD": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **words, "_PEERCACHECTL_COMPLETE": "bash_complete"},
        capture_output=True,
        text=True,
        check=True,
    )
    *completions, loaded = done.stdout.splitlines()
    assert len(completions) == len(main.table)
    assert loaded == "[]"


def test_bash_completes_commands() -> None:
    words = {"COMP_WORDS": "peercachectl un", "COMP_CWORD": "1"}
    done = subprocess.run(
        [sys.executable, "-c", "from peercached.cli.ctl import main; main(prog_name='peercachectl')"],  # noqa: E501
        env={**os.environ, **words, "_PEERCACHECTL_COMPLETE": "bash_complete"},
        capture_output=True,
        text=True,
        check=True,
    )  # fmt: skip
    assert "plain,undrain" in done.stdout


def test_the_daemons_version_is_named_when_the_versions_do_not_fit(
    ctl: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    with AdminClient(str(ctl.folder / "run-admin" / "d.sock")) as client:
        client.status()
        assert client.version == __version__
        ctl.source.document = {"schema_version": 99}
        monkeypatch.setattr("peercached.admin.client.__version__", "0.0.9")
        with pytest.raises(Refused, match=rf"another version \({__version__}\) than .* 0\.0\.9"):
            client.status()
        monkeypatch.setattr("peercached.admin.client.CALLS", {"NoSuchCall": CALLS["Status"]})
        with pytest.raises(Refused, match="another version"):
            client._call("NoSuchCall")


def members_of(bundle: Path) -> dict[str, str]:
    with tarfile.open(bundle) as archive:
        return {
            Path(entry.name).name: archive.extractfile(entry).read().decode()  # type: ignore[union-attr]
            for entry in archive
        }


def test_a_support_bundle_has_all_parts_and_no_secrets(ctl: Bench) -> None:
    secret = ctl.folder / "cluster.secret"
    secret.write_text("correct horse battery staple\n")
    log = ctl.folder / "daemon.log"
    log.write_text(
        "WARNING the secret is correct horse battery staple\n"
        "peer https://user:hunter22@example.org\n"
        "-----BEGIN PRIVATE KEY-----\nMIIabc\n-----END PRIVATE KEY-----\nthe end\n"
    )
    ctl.source.document = {"node": {"id": "a"}}
    ctl.source.settings = {"cluster_secret_file": {"value": str(secret), "source": "default"}}
    bundle = ctl.folder / "b.tar.gz"
    result = ctl("support-bundle", "-o", str(bundle), "--log", str(log), "--json")
    assert result.exit_code == exits.OK, result.output
    assert json.loads(result.output)["file"] == str(bundle)
    assert bundle.stat().st_mode & 0o777 == 0o600
    parts = members_of(bundle)
    for name in ("README.txt", "status.json", "ring.json", "config.json", "doctor.json",
                 "versions.json", "machine.json", "log.txt"):  # fmt: skip
        assert name in parts, name
    assert json.loads(parts["versions.json"])["version"] == __version__
    everything = "".join(parts.values())
    for gone in ("battery staple", "hunter22", "MIIabc"):
        assert gone not in everything
    assert "the end" in parts["log.txt"]
    assert ctl("support-bundle", "-o", str(bundle)).exit_code == exits.FAILED, "never over a file"


def test_a_support_bundle_is_made_without_the_daemon_too(tmp_path: Path) -> None:
    bundle = tmp_path / "b.tar.gz"
    result = CliRunner().invoke(
        main, ["--socket", str(tmp_path / "none.sock"), "support-bundle", "-o", str(bundle)]
    )
    assert result.exit_code == exits.OK, result.output
    parts = members_of(bundle)
    assert "there is no admin socket" in parts["status.json.error"]
    assert "machine.json" in parts


def test_short_secrets_take_nothing_out() -> None:
    assert redact.redact("a b c", [b"", b"a", b"b"]) == "a b c"
    assert redact.redact("x 0011223344556677 y", [bytes.fromhex("0011223344556677")]) == (
        "x [taken out] y"
    )
