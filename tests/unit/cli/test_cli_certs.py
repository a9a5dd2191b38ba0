"""peercachectl certs: daemons accept the files that it makes, and it overwrites nothing unasked."""

import json
import stat
from pathlib import Path

from click.testing import CliRunner, Result

from peercached.cli.ctl import main
from peercached.peer.rpc.authority import files_of
from peercached.peer.rpc.certificates import read


def certs(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["certs", *arguments])


def test_each_node_gets_files_that_it_can_serve_with(tmp_path: Path) -> None:
    result = certs(str(tmp_path), "a=10.0.0.1,a.example", "b=10.0.0.2", "--days", "9")
    assert result.exit_code == 0, result.output
    assert read(files_of(tmp_path, "a"), "a", "a.example").names[0] == "a.example"
    read(files_of(tmp_path, "b"), "b", "10.0.0.2")
    for key in ("a.key", "b.key", "ca.key"):
        assert stat.S_IMODE((tmp_path / key).stat().st_mode) == 0o600
    assert 'tls_cert = "/etc/peercached/b.crt"' in result.output
    assert "ca.key stays here" in result.output


def test_nothing_is_overwritten_unless_asked_and_the_authority_never(tmp_path: Path) -> None:
    certs(str(tmp_path), "a=10.0.0.1")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    result = certs(str(tmp_path), "b=10.0.0.2", "a=10.0.0.1")
    assert result.exit_code == 4
    assert "is there already" in result.output
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert certs(str(tmp_path), "a=10.0.0.1", "--renew").exit_code == 0
    assert (tmp_path / "ca.key").read_bytes() == before["ca.key"]
    assert (tmp_path / "a.crt").read_bytes() != before["a.crt"]
    read(files_of(tmp_path, "a"), "a", "10.0.0.1")


def test_a_later_node_gets_its_certificate_of_the_same_authority(tmp_path: Path) -> None:
    certs(str(tmp_path), "a=10.0.0.1")
    result = certs(str(tmp_path), "b=10.0.0.2", "--json")
    assert json.loads(result.output)["nodes"][0]["hosts"] == ["10.0.0.2"]
    read(files_of(tmp_path, "b"), "b", "10.0.0.2")


def test_malformed_node_argument_is_wrong_usage(tmp_path: Path) -> None:
    for wrong in ("../a=10.0.0.1", "a=not_a/host", "ca=10.0.0.1"):
        result = certs(str(tmp_path / "new"), wrong)
        assert result.exit_code == 2, wrong
    assert certs(str(tmp_path), "a=10.0.0.1", "a=10.0.0.2").exit_code == 2
    (tmp_path / "ca.crt").write_text("rubbish")
    assert certs(str(tmp_path), "a=10.0.0.1").exit_code == 4
