"""The TLS files that a node accepts. A mistake in a rotation leaves the old files in force."""

from datetime import datetime, timedelta, timezone
from pathlib import Path
from unittest.mock import Mock

import pytest
from harness.said import said as findings

from peercached.peer.rpc import tls as of_tls
from peercached.peer.rpc.authority import Authority, files_of
from peercached.peer.rpc.certificates import CertificateProblem, Files, covers, misfit, read
from peercached.peer.rpc.tls import Tls

HOST = "10.0.0.1"


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    made = Authority.make()
    made.save(tmp_path / "ca.crt", tmp_path / "ca.key")
    return made


@pytest.fixture
def files(authority: Authority, tmp_path: Path) -> Files:
    issue(authority, tmp_path)
    return files_of(tmp_path, "a")


def issue(
    authority: Authority,
    folder: Path,
    node_id: str = "a",
    host: str = HOST,
    lifetime: timedelta = timedelta(days=30),
) -> None:
    files = files_of(folder, node_id)
    certificate, key = Path(files.certificate), Path(files.key)
    authority.issue(certificate, key, node_id, [host], lifetime, replace=certificate.exists())


def said(tls: Tls) -> list[tuple[str, str]]:
    return [(one["severity"], one["sentence"]) for one in findings(tls.say)]


def test_good_files_are_taken_with_the_first_of_their_ends(files: Files) -> None:
    found = read(files, "a", HOST)
    assert HOST in found.names
    assert "peercached://node/a" in found.names
    assert timedelta(days=29) < found.not_after - datetime.now(timezone.utc) < timedelta(days=31)
    assert "PRIVATE" not in repr(found)


def test_a_certificate_of_another_authority_is_refused(files: Files, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    Authority.make().save(other / "ca.crt", other / "ca.key")
    foreign = Files(str(other / "ca.crt"), files.certificate, files.key)
    with pytest.raises(CertificateProblem, match="not signed by an authority in"):
        read(foreign, "a", HOST)


def test_two_authorities_in_one_file_are_how_one_replaces_the_other(
    files: Files, tmp_path: Path
) -> None:
    ca = Path(files.ca)
    Authority.make().save(tmp_path / "next.crt", tmp_path / "next.key")
    ca.write_bytes((tmp_path / "next.crt").read_bytes() + ca.read_bytes())
    assert read(files, "a", HOST).names


@pytest.mark.parametrize(
    ("offset", "text"),
    [(timedelta(days=31), "has expired"), (timedelta(days=-1), "valid only from")],
)
def test_certificate_outside_its_dates_is_refused(
    files: Files, offset: timedelta, text: str
) -> None:
    with pytest.raises(CertificateProblem, match=text):
        read(files, "a", HOST, datetime.now(timezone.utc) + offset)


def test_the_certificate_of_another_host_or_node_is_refused(files: Files) -> None:
    with pytest.raises(CertificateProblem, match=r"not for host 10\.0\.0\.2"):
        read(files, "a", "10.0.0.2")
    with pytest.raises(CertificateProblem, match="is node a's, not b's"):
        read(files, "b", HOST)


def test_certificate_of_a_node_is_no_authority(files: Files) -> None:
    with pytest.raises(ValueError, match="no authority's certificate"):
        Authority.load(Path(files.certificate), Path(files.key))


def test_a_key_that_is_not_the_certificates_is_refused(
    authority: Authority, files: Files, tmp_path: Path
) -> None:
    issue(authority, tmp_path, "b")
    with pytest.raises(CertificateProblem, match="is not the key of"):
        read(Files(files.ca, files.certificate, str(tmp_path / "b.key")), "a", HOST)


@pytest.mark.parametrize("content", [b"", b"no PEM at all", b"\x00" * 70000])
@pytest.mark.parametrize("which", ["ca", "certificate", "key"])
def test_rubbish_is_refused_with_the_files_name(files: Files, which: str, content: bytes) -> None:
    path = Path(getattr(files, which))
    path.write_bytes(content)
    with pytest.raises(CertificateProblem, match=path.name):
        read(files, "a", HOST)


def test_a_star_stands_for_one_label() -> None:
    assert covers(["*.rack1.example"], "n7.rack1.example")
    assert covers(["N7.Example"], "n7.example.")
    assert covers(["0:0:0:0:0:0:0:1"], "::1")
    assert not covers(["*.rack1.example"], "a.b.rack1.example")
    assert not covers(["*.example"], "10.0.0.example2")
    assert not covers(["*.0.0.1"], "10.0.0.2")
    assert not covers(["*"], "a")
    assert not covers([], "a")


def test_a_certificate_that_names_no_node_leaves_that_to_the_secret() -> None:
    assert misfit([HOST], "any", HOST) == ""
    assert "is node a's" in misfit([HOST, "peercached://node/a"], "b", HOST)


# --- rotation


def test_new_files_are_taken_up(authority: Authority, files: Files, tmp_path: Path) -> None:
    tls = Tls(files, "a", HOST)
    before = tls.current
    assert not tls.look()
    issue(authority, tmp_path, lifetime=timedelta(days=60))
    assert tls.look()
    assert tls.generation == 2
    assert tls.current.not_after > before.not_after
    assert said(tls) == []


def test_files_that_a_library_fails_at_unexpectedly_keep_the_old_ones_and_are_reported(
    authority: Authority, files: Files, tmp_path: Path
) -> None:
    loaded = Tls(files, "a", HOST)
    issue(authority, tmp_path, lifetime=timedelta(days=60))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(of_tls, "read", Mock(side_effect=RuntimeError("no such curve")))
        assert not loaded.look()
        assert "no such curve" in said(loaded)[0][1]
    assert loaded.look()
    assert said(loaded) == []


def test_broken_new_certificate_keeps_the_old_one_and_is_reported(
    authority: Authority, files: Files, tmp_path: Path
) -> None:
    tls = Tls(files, "a", HOST)
    before = tls.current
    certificate = Path(files.certificate)
    good = certificate.read_bytes()
    certificate.write_bytes(good[: len(good) // 2])
    assert not tls.look()
    assert tls.current is before
    ((severity, sentence),) = said(tls)
    assert severity == "warning"
    assert "The old ones stay in use" in sentence
    certificate.write_bytes(good)
    assert not tls.look()
    assert said(tls) == []


def test_key_and_certificate_need_not_be_replaced_at_one_time(
    authority: Authority, files: Files, tmp_path: Path
) -> None:
    tls = Tls(files, "a", HOST)
    old = tls.current
    issue(authority, tmp_path, "spare")
    (tmp_path / "a.key").write_bytes((tmp_path / "spare.key").read_bytes())
    assert not tls.look()
    assert tls.current is old
    issue(authority, tmp_path)
    assert tls.look()
    assert said(tls) == []


@pytest.mark.parametrize(
    ("days", "age", "severity"),
    [(365, 340, ""), (365, 352, "warning"), (365, 366, "error"), (2, 1.5, ""), (2, 1.7, "warning")],
)
def test_the_end_is_announced_in_time_for_the_certificates_life(
    authority: Authority,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    days: float,
    age: float,
    severity: str,
) -> None:
    issue(authority, tmp_path, lifetime=timedelta(days=days))
    tls = Tls(files_of(tmp_path, "a"), "a", HOST)
    later = datetime.now(timezone.utc) + timedelta(days=age)
    monkeypatch.setattr("peercached.peer.rpc.tls._now", lambda: later)
    assert [one for one, _ in said(tls)] == ([severity] if severity else [])


def test_node_refuses_to_start_with_an_expired_certificate(
    authority: Authority, tmp_path: Path
) -> None:
    issue(authority, tmp_path, lifetime=timedelta(hours=-1))
    files = files_of(tmp_path, "a")
    with pytest.raises(RuntimeError, match="TLS: the certificate CN=a has expired"):
        Tls.load(files.ca, files.certificate, files.key, "a", HOST)
    assert Tls.load("", "", "", "a", HOST) is None
