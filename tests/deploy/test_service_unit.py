"""Checks the systemd unit and its snippets with systemd's own tools."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from peercached.config import load

SYSTEMD = Path(__file__).parents[2] / "deploy" / "systemd"
UNIT = SYSTEMD / "peercached.service"
# On a scale of 10. RDMA needs the network and the devices, so they stay exposed, and threads of low
# priority need sched_setscheduler.
EXPOSURE_MAX = 1.7

pytestmark = pytest.mark.skipif(
    not shutil.which("systemd-analyze"), reason="systemd-analyze is not installed"
)


def analyze(*arguments: str) -> str:
    done = subprocess.run(
        ["systemd-analyze", *arguments], capture_output=True, text=True, check=False
    )
    return done.stdout + done.stderr


def test_the_unit_is_clean(tmp_path: Path) -> None:
    # systemd checks that the programs exist, and ours are not installed here.
    text = re.sub(r"/opt/peercached/bin/\w+", "/bin/true", UNIT.read_text())
    unit = tmp_path / UNIT.name
    unit.write_text(text)
    assert analyze("verify", "--man=no", str(unit)) == ""
    unit.write_text(text.replace("WatchdogSec", "WatchdogSecs"))
    assert "WatchdogSecs" in analyze("verify", "--man=no", str(unit)), "it looks at all"


def test_the_unit_leaves_little_open() -> None:
    said = analyze("security", "--offline=yes", "--no-pager", str(UNIT))
    found = re.search(r"Overall exposure level for \S+: ([\d.]+)", said)
    assert found is not None, said
    assert float(found[1]) <= EXPOSURE_MAX


def test_the_gpu_drop_in_opens_the_gpus_and_shows_workers_and_nothing_else(tmp_path: Path) -> None:
    shipped = analyze("security", "--offline=yes", "--no-pager", str(UNIT))
    unit = tmp_path / UNIT.name
    unit.write_text(re.sub(r"/opt/peercached/bin/\w+", "/bin/true", UNIT.read_text()))
    drop_in = tmp_path / f"{UNIT.name}.d" / "gpu.conf"
    drop_in.parent.mkdir()
    drop_in.write_text((SYSTEMD / "peercached-gpu.conf").read_text())
    assert analyze("verify", "--man=no", str(unit)) == ""
    opened = analyze("security", "--offline=yes", "--no-pager", str(unit))
    assert "char-nvidia:rw" in opened and "nvidia" not in shipped
    worse = {line.split()[1] for line in opened.splitlines() if line.startswith("✗")}
    worse -= {line.split()[1] for line in shipped.splitlines() if line.startswith("✗")}
    assert worse == {"ProtectProc="}


def test_unit_allows_rdma_devices_and_locked_memory() -> None:
    text = UNIT.read_text()
    for line in ("LimitMEMLOCK=infinity", "DeviceAllow=char-infiniband_verbs rw", "Type=notify"):
        assert line in text.splitlines()
    assert "PrivateDevices=yes" not in text
    assert "AF_NETLINK" in text


def test_unit_stop_timeout_exceeds_the_drain_time() -> None:
    seconds = int(re.search(r"TimeoutStopSec=(\d+)", UNIT.read_text())[1])  # type: ignore[index]
    assert seconds >= load(None, {}, {}).config.stop_drain_s + 20


def test_user_and_folders_are_made(tmp_path: Path) -> None:
    if not shutil.which("systemd-sysusers") or not shutil.which("systemd-tmpfiles"):
        pytest.skip("systemd-sysusers and systemd-tmpfiles are not installed")
    for folder in ("etc", "run", "var/lib"):
        (tmp_path / folder).mkdir(parents=True)
    for tool, snippet in (
        (["systemd-sysusers"], "peercached.sysusers.conf"),
        (["systemd-tmpfiles", "--create"], "peercached.tmpfiles.conf"),
    ):
        done = subprocess.run(
            [*tool, f"--root={tmp_path}", str(SYSTEMD / snippet)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stderr.replace("Creating", "")[:0]) == (0, ""), done.stderr
    assert "peercached:" in (tmp_path / "etc/passwd").read_text()
    groups = {
        name: (int(number), members)
        for name, _, number, members in (
            line.split(":") for line in (tmp_path / "etc/group").read_text().splitlines()
        )
    }
    assert groups["peercached"][1] == "", "the daemon's alone"
    assert groups["peercached-workers"][1] == "peercached", "the daemon may give its socket to it"
    run = (tmp_path / "run/peercached").stat()
    assert (run.st_mode & 0o777, run.st_gid) == (0o750, groups["peercached-workers"][0])


def test_the_daemon_may_make_both_sockets() -> None:
    lines = UNIT.read_text().splitlines()
    config = load(None, {}, {"socket_path": "/run/peercached/peercached.sock"}).config
    assert f"RuntimeDirectory={Path(config.admin_socket).parent.name}" in lines
    assert "RuntimeDirectoryMode=0700" in lines
    # Not a RuntimeDirectory: systemd would give it to the daemon's own group at each start.
    assert f"ReadWritePaths={Path(config.socket_path).parent}" in lines
    assert "SystemCallFilter=@chown" in lines, "to give the socket to peercached-workers"


def test_the_example_configuration_is_one_the_daemon_takes() -> None:
    config = load(SYSTEMD / "peercached.toml", {}, {"pool_size": "64MiB"}).config
    assert not config.clustered, "it starts on its own until somebody names the heads"
    commented = re.sub(
        r"^# (?=\w+ = )", "", (SYSTEMD / "peercached.toml").read_text(), flags=re.MULTILINE
    )
    for line in commented.splitlines():
        key = line.split(" = ")[0]
        assert not re.fullmatch(r"\w+", key) or key in type(config).model_fields, key
