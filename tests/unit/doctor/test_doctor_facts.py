"""The doctor's sources: pyverbs in another process, kernel files, and commands."""

from __future__ import annotations

import contextlib
import grp
import json
import os
import pwd
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from peercached.admin.status import Health, Status
from peercached.cli import exits
from peercached.cli.ctl import main
from peercached.config import Config
from peercached.doctor import cuda_probe, devices, examine, gpu_facts, peers
from peercached.doctor.devices import Device, ProbeFailed, PyverbsMissing, find_devices

FOUND = [
    {
        "name": "mlx5_0", "numa_node": 1, "firmware": "1.2", "max_mr_bytes": 1 << 40,
        "max_qps": 1000, "max_reads": 16,
        "ports": [{
            "number": 1, "state": "active", "link_layer": "Ethernet", "lid": 0, "mtu_bytes": 4096,
            "mtu_max_bytes": 4096, "rate_gbps": 400.0,
            "gids": [{"index": 3, "gid": "::ffff:10.0.0.1", "type": "RoCE v2", "netdev": "eth2"}],
        }],
    },
    {"name": "mlx5_1", "numa_node": 0, "error": "Permission denied"},
]  # fmt: skip


# Enough of NVIDIA's driver for cuda_probe.py; INIT_RESULT is what cuInit returns.
CUDA = """
#include <stdlib.h>
#include <string.h>
int cuInit(unsigned flags) {
  const char* result = getenv("INIT_RESULT");
  if (result && !strcmp(result, "crash")) abort();
  return result ? atoi(result) : 0;
}
int cuGetErrorString(int code, const char** text) { *text = "no device"; return 0; }
int cuDeviceGetCount(int* count) { *count = 2; return 0; }
int cuDeviceGet(int* device, int number) { *device = number; return 0; }
int cuDeviceGetName(char* name, int size, int device) { strcpy(name, "H100"); return 0; }
"""


def python_that(folder: Path, script: str) -> str:
    path = folder / "python"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


@pytest.fixture
def with_devices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    document = tmp_path / "devices.json"
    document.write_text(json.dumps(FOUND))
    use(monkeypatch, python_that(tmp_path, f"cat {document}"))


def use(monkeypatch: pytest.MonkeyPatch, *pythons: str) -> None:
    monkeypatch.setattr(devices, "PYTHONS", pythons)


def test_devices_are_read_from_the_python_with_pyverbs(with_devices: None) -> None:
    first, second = find_devices()
    assert (first.numa_node, first.ports[0].active, first.ports[0].netdev) == (1, True, "eth2")
    assert first.ports[0].gids[0].address() == "10.0.0.1"
    assert second.error == "Permission denied"


def test_a_python_without_pyverbs_gives_way_to_the_next(tmp_path: Path) -> None:
    without = python_that(tmp_path, "exit 3")
    (tmp_path / "b").mkdir()
    with_none = python_that(tmp_path / "b", "echo '[]'")
    assert find_devices(["/nonexistent/python3", without, with_none]) == []
    with pytest.raises(PyverbsMissing, match="apt-get install python3-pyverbs"):
        find_devices([without])


def test_a_probe_that_breaks_says_why(tmp_path: Path) -> None:
    broken = python_that(tmp_path, "echo 'libibverbs.so.1: wrong version' >&2; exit 1")
    with pytest.raises(ProbeFailed, match=r"libibverbs\.so\.1: wrong version"):
        find_devices([broken])


def test_the_probe_itself_runs_in_any_python_of_this_machine() -> None:
    with contextlib.suppress(PyverbsMissing):  # the only error allowed
        assert isinstance(find_devices([sys.executable]), list)


def test_the_devices_command_lists_ports_and_gids(with_devices: None) -> None:
    result = CliRunner().invoke(main, ["devices"])
    assert result.exit_code == 0
    for part in ("mlx5_0:1", "400 Gb/s", "4096 of 4096", "RoCE v2", "10.0.0.1", "1 TiB",
                 "mlx5_1 cannot be opened: Permission denied"):  # fmt: skip
        assert part in result.output, part
    listed = json.loads(CliRunner().invoke(main, ["devices", "--json"]).output)
    assert [each["name"] for each in listed] == ["mlx5_0", "mlx5_1"]


def test_the_devices_command_without_pyverbs_has_an_exit_code_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, python_that(tmp_path, "exit 3"))
    result = CliRunner().invoke(main, ["devices"])
    assert result.exit_code == exits.NO_PYVERBS
    assert "apt-get install python3-pyverbs" in result.output
    use(monkeypatch, python_that(tmp_path, "exit 1"))
    assert CliRunner().invoke(main, ["devices"]).exit_code == exits.FAILED
    use(monkeypatch, python_that(tmp_path, "echo '[]'"))
    result = CliRunner().invoke(main, ["devices"])
    assert (result.exit_code, "no RDMA device" in result.output) == (0, True)


def test_doctor_parses_limits_capabilities_huge_pages_and_groups() -> None:
    line = "Max locked memory         {}              {}              bytes\n"
    assert examine.locked_limit_bytes(line.format(8388608, 8388608)) == 8 << 20
    assert examine.locked_limit_bytes(line.format("unlimited", "unlimited")) is None
    assert examine.may_lock("CapEff:\t0000000000004000\n")
    assert not examine.may_lock("CapEff:\t0000000000003fff\n")
    text = "HugePages_Total:     512\nHugePages_Free:      7\nHugepagesize:       2048 kB\n"
    assert examine.huge_pages(text) == (7, 2 << 20)
    assert examine.huge_pages("MemTotal: 1 kB\n") == (0, 2 << 20)
    text = "Name:\tx\nUid:\t7\t8\t8\t8\nGid:\t5\t5\t5\t5\nGroups:\t701 702 \nNgid:\t9\n"
    assert examine.uid_and_gids(text) == (8, frozenset({5, 701, 702}))


def test_doctor_finds_users_in_the_daemons_group_and_readers_of_its_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("x" * 32)
    secret.chmod(0o640)
    group = grp.struct_group(("peercached", "x", secret.stat().st_gid, ["engine", "peercached"]))

    def user(name: str, group: int) -> pwd.struct_passwd:
        return pwd.struct_passwd((name, "x", 4711, group, "", "/", "/bin/sh"))

    for name in ("getgrnam", "getgrgid"):
        monkeypatch.setattr(grp, name, lambda _: group)
    monkeypatch.setattr(pwd, "getpwall", lambda: [user("daily", group.gr_gid)])
    monkeypatch.setattr(pwd, "getpwuid", lambda _: user("peercached", group.gr_gid))
    config = Config(cluster_secret_file=str(secret), protocol="tcp")

    def found() -> dict[str, str]:
        each = examine.examine(config, None, "none runs")
        return {f.text: f.remedy for f in each if f.check == "access"}

    in_group = "{} is in the group peercached, which may read the daemon's files"
    readers = "cluster_secret_file can be read by engine, through the group peercached"
    assert [text.split(":")[0] for text in found()] == [
        in_group.format("daily"),
        in_group.format("engine"),
        readers,
    ]
    remedy = found()[in_group.format("engine")]
    assert "gpasswd -d engine peercached" in remedy
    assert "usermod -aG peercached-workers engine" in remedy
    secret.chmod(0o600)
    assert not any(readers in text for text in found())


def test_doctor_warns_that_pyverbs_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def missing() -> list[Device]:
        raise PyverbsMissing(f"no pyverbs: {devices.HOW_TO_GET}")

    monkeypatch.setattr(examine, "find_devices", missing)
    monkeypatch.setattr(examine, "rdma_devices", lambda: ["mlx5_0"])
    config = Config(socket_path="/a", admin_socket="/b", node_id="n", host="127.0.0.1")
    findings = examine.examine(config, None, "none runs")
    (pyverbs,) = [finding for finding in findings if finding.check == "pyverbs"]
    assert pyverbs.level == "warning"
    assert "apt-get install" in pyverbs.text


def test_doctor_repeats_the_health_findings_of_the_daemon(monkeypatch: pytest.MonkeyPatch) -> None:
    config = Config(
        socket_path="/a", admin_socket="/b", node_id="n", host="127.0.0.1", protocol="tcp"
    )
    monkeypatch.setattr(peers, "ask", lambda _: [])
    alone = Health(severity="error", sentence="No head can be reached.", remedy="Start one.")
    status = Status(health=[Health(sentence="b is suspect."), alone])
    found = [f for f in examine.examine(config, status, "") if f.check == "daemon"]
    assert [(f.level, f.remedy) for f in found] == [
        ("ok", ""),
        ("warning", ""),
        ("failure", "Start one."),
    ]


def test_the_doctor_command_prints_the_worst_first_and_exits_by_it(tmp_path: Path) -> None:
    file = tmp_path / "p.toml"
    file.write_text('protocol = "tcp"\nhuge_pages = true\npool_size = "1MiB"\n')
    runner = CliRunner()
    socket = str(tmp_path / "none.sock")
    arguments = ["doctor", "--config", str(file), "--socket", socket]
    result = runner.invoke(main, arguments)
    document = json.loads(runner.invoke(main, [*arguments, "--json"]).output)
    levels = {finding["check"]: finding["level"] for finding in document["findings"]}
    assert levels["RDMA"] == levels["daemon"] == "skipped"
    assert result.exit_code == document["exit_code"]
    order = [line[:7].strip() for line in result.output.splitlines() if line[0] != " "]
    ranks = ["FAILURE", "WARNING", "ok", "skipped"]
    assert [ranks.index(each) for each in order] == sorted(ranks.index(each) for each in order)

    file.write_text('protocol = "tcp"\ndevice_names = "mlx5_0"\n')
    result = runner.invoke(main, arguments)
    assert result.exit_code == 2
    assert "FAILURE  configuration" in result.output
    assert "protocol is tcp" in result.output


def test_heads_that_do_not_answer_are_failures_and_name_the_remedy(tmp_path: Path) -> None:
    file = tmp_path / "p.toml"
    file.write_text('protocol = "tcp"\nhost = "127.0.0.1"\ndiscovery_addr = "127.0.0.1:9"\n')
    result = CliRunner().invoke(
        main, ["doctor", "--config", str(file), "--socket", str(tmp_path / "none.sock")]
    )
    assert result.exit_code == 2
    assert "the head 127.0.0.1:9 cannot be reached: Connection refused" in result.output
    assert "-> Start peercached there" in result.output


def test_doctor_help_works_without_the_native_module() -> None:
    script = (
        "import sys; sys.modules['peercached._native'] = None\n"
        "from peercached.cli.ctl import main; main(['doctor', '--help'])"
    )
    assert b"Exit codes" in subprocess.check_output([sys.executable, "-c", script])


def test_the_probe_asks_for_the_calls_of_the_data_plane() -> None:
    source = Path(__file__).parents[3] / "native" / "device" / "cuda_driver.cc"
    taken = re.findall(r'take\(cuda\.\w+, "(\w+)"\)', source.read_text())
    assert tuple(taken) == cuda_probe.CALLS


def test_a_driver_that_is_missing_old_broken_or_silent_is_told_from_one_that_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = shutil.which("cc")
    if not compiler:
        pytest.skip("no C compiler")
    others = [call for call in cuda_probe.CALLS if f"int {call}(" not in CUDA]
    source, library = tmp_path / "cuda.c", tmp_path / "libcuda.so.1"
    source.write_text(CUDA + "".join(f"int {call}(void) {{ return 0; }}\n" for call in others))
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source], check=True)
    probe = (sys.executable, "-I", str(Path(cuda_probe.__file__)))

    def told(of: object = library, result: str = "0") -> tuple[str, str]:
        monkeypatch.setenv("INIT_RESULT", result)
        driver = gpu_facts.ask_driver((*probe, str(of)))
        return driver.fault, driver.text or ", ".join(driver.names)

    assert told() == ("", "H100, H100")
    assert told(result="100") == ("start", "cuInit: no device (100)")
    assert told(result="crash") == ("silence", "ended the process that asked it: exit code -6")
    assert told("libc.so.6") == ("calls", "cuInit, cuGetErrorString, cuDeviceGetCount")
    assert told(tmp_path / "none.so")[0] == "library"
    monkeypatch.setattr(gpu_facts, "_PROBE_S", 0.1)
    silent = gpu_facts.ask_driver((python_that(tmp_path, "exec sleep 60"),))
    assert (silent.fault, silent.text) == ("silence", "did not answer in 0.1 s")


def test_doctor_reads_the_unit_and_the_rights_of_device_files(tmp_path: Path) -> None:
    shown = "LoadState=loaded\nDeviceAllow=char-a rw\nDeviceAllow=char-nvidia rw\nX=\n"
    unit = gpu_facts.properties(shown)
    assert unit == {"LoadState": "loaded", "DeviceAllow": "char-a rw, char-nvidia rw", "X": ""}
    assert gpu_facts.properties("LoadState=not-found\nDevicePolicy=auto\n") == {}
    path = tmp_path / "nvidia0"
    assert gpu_facts.may_open(path, 4711, {4712}) is None
    path.touch()
    path.chmod(0o660)
    assert gpu_facts.may_open(path, os.geteuid(), set()) is True
    assert gpu_facts.may_open(path, 4711, {4712}) is False
    assert gpu_facts.may_open(path, 4711, {path.stat().st_gid}) is True
    path.chmod(0o666)
    assert gpu_facts.may_open(path, 4711, set()) is True
