"""`peercached` and `peercached config`: options, output, exit codes, signals."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from harness.clock import seconds

from peercached.cli.daemon import main
from peercached.config.keys import KEYS

# Runs the real command line with a fake daemon, whose `run` the test supplies.
DRIVER = """
import sys, types
daemon = types.ModuleType("peercached.run")
daemon.types = types
exec(sys.argv.pop(1), daemon.__dict__)
sys.modules["peercached.run"] = daemon
from peercached.cli.daemon import main
main(prog_name="peercached")
"""
SERVES = """
async def run(settings, stop, service):
    service.ready(types.SimpleNamespace(line=lambda: "Serving."))
    await stop.asked.wait()
"""


@pytest.fixture
def daemons() -> Iterator[list[subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []
    yield started
    for process in started:
        process.kill()
        process.communicate()


def start(
    daemons: list[subprocess.Popen[str]], code: str, *arguments: str, **variables: str
) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", DRIVER, code, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **variables},
    )
    daemons.append(process)
    return process


def wait_for_line(process: subprocess.Popen[str], part: str) -> str:
    assert process.stderr is not None
    for line in process.stderr:
        if part in line:
            return line
    raise AssertionError(f"ended with {process.wait()} before it said {part!r}")


def invoke(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, arguments)
    return result.exit_code, result.output


def test_config_shows_each_value_and_its_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "p.toml"
    file.write_text("max_masters = 7\n")
    monkeypatch.setenv("PEERCACHED_WORKERS_MAX", "9")
    code, output = invoke("config", "--config", str(file), "--pool-size", "2g")
    assert code == 0
    rows = {line.split()[0]: line.split(maxsplit=2)[1:] for line in output.splitlines()[2:] if line}
    assert rows["max_masters"][0] == "7"
    assert rows["max_masters"][1].strip().startswith("file ")
    assert [word.strip() for word in rows["workers_max"]] == [
        "9",
        "environment PEERCACHED_WORKERS_MAX",
    ]
    assert [word.strip() for word in rows["pool_size"]] == [str(2 << 30), "option --pool-size"]
    assert set(KEYS) <= set(rows)


def test_config_json_has_value_and_source_of_every_key() -> None:
    code, output = invoke("--max-masters", "5", "config", "--json", "--huge-pages")
    assert code == 0
    document = json.loads(output)
    assert set(document) == set(KEYS)
    assert document["max_masters"] == {"value": 5, "source": "option --max-masters"}
    assert document["huge_pages"]["value"] is True
    assert document["data_port"] == {"value": 31999, "source": "default"}


def test_the_file_may_be_named_by_a_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "p.toml"
    file.write_text("max_masters = 7\n")
    monkeypatch.setenv("PEERCACHED_CONFIG", str(file))
    _, output = invoke("config", "--json")
    assert json.loads(output)["max_masters"]["value"] == 7


def test_config_check_prints_only_the_verdict() -> None:
    assert invoke("config", "--check") == (0, "The configuration is good.\n")
    code, output = invoke("config", "--check", "--pool-size", "8gibi")
    assert code == 2
    assert "pool_size = '8gibi' (option --pool-size): is not a size; give " in output


def test_config_check_fails_with_1_if_the_daemon_could_not_start_now(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    options = ["--pool-size", "64MiB", "--socket-path", str(tmp_path / "a" / "p.sock")]
    assert invoke("config", "--check", *options)[0] == 0, "the daemon makes the folder"
    monkeypatch.setattr("peercached.cli.daemon.available_bytes", lambda: 1 << 20)
    code, output = invoke("config", "--check", *options)
    assert code == 1
    assert "It could not start now: pool_size = 64MiB, but only 1 MiB" in output
    code, output = invoke("config", "--check", "--json", *options)
    assert code == 1
    assert json.loads(output)["warnings"][0].startswith("pool_size = 64MiB")
    with socket.socket(socket.AF_UNIX) as running:
        admin_socket = tmp_path / "admin" / "p.sock"
        admin_socket.parent.mkdir(0o700)
        running.bind(str(admin_socket))
        running.listen()
        options += ["--admin-socket", str(admin_socket)]
        assert invoke("config", "--check", *options)[0] == 0, "this is its own memory"
    (tmp_path / "file").touch()
    path = tmp_path / "file" / "folder" / "p.sock"
    for key in ("socket_path", "admin_socket"):
        code, output = invoke("config", "--check", f"--{key.replace('_', '-')}", str(path))
        assert code == 1
        assert f"now: {key} = {path}: this user cannot write its folder" in output


def test_heads_may_be_repeated_or_joined() -> None:
    code, output = invoke(
        "config", "--json", "--discovery-addr", "127.0.0.1:1,127.0.0.1:2",
        "--discovery-addr", "127.0.0.1:3",
    )  # fmt: skip
    assert code == 0
    heads = json.loads(output)["discovery_addr"]["value"]
    assert heads == ["127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"]


def test_every_key_is_an_option_with_help() -> None:
    code, output = invoke("--help")
    assert code == 0
    for key in KEYS.values():
        assert key.option in output


def test_an_unknown_option_names_the_nearest() -> None:
    code, output = invoke("--pol-size", "1g")
    assert code == 2
    assert "--pool-size" in output


def test_a_bad_configuration_stops_the_daemon_with_2_and_no_traceback(
    daemons: list[subprocess.Popen[str]],
) -> None:
    process = start(daemons, SERVES, "--meta-port", "0")
    _, error = process.communicate(timeout=seconds(30))
    assert process.returncode == 2
    assert "meta_port = '0' (option --meta-port): is too small" in error
    assert "Traceback" not in error


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_the_daemon_cleanly_with_0(
    daemons: list[subprocess.Popen[str]], number: signal.Signals
) -> None:
    process = start(daemons, SERVES, "--node-id", "n1")
    assert "ready: node n1" in wait_for_line(process, "ready")
    process.send_signal(number)
    _, error = process.communicate(timeout=seconds(30))
    assert process.returncode == 0
    assert f"received {number.name}: stopping" in error
    assert "stopped" in error


@pytest.mark.parametrize(
    "hangs",
    [
        "    await asyncio.Event().wait()\n",
        "    while True:\n"
        "        try: await asyncio.Event().wait()\n"
        "        except asyncio.CancelledError: pass\n",
    ],
    ids=["a stop that can be cancelled", "one that cannot"],
)
def test_a_second_signal_ends_a_stop_that_hangs(
    daemons: list[subprocess.Popen[str]], hangs: str
) -> None:
    process = start(daemons, SERVES + "    import asyncio\n" + hangs)
    wait_for_line(process, "ready")
    process.terminate()
    wait_for_line(process, "SIGTERM: stopping")
    process.terminate()
    process.communicate(timeout=seconds(30))
    assert process.returncode == 1


def test_only_sigterm_leaves_time_for_handing_pages_over(
    daemons: list[subprocess.Popen[str]],
) -> None:
    tells = SERVES + "    print('hand over', stop.hand_over, flush=True)\n"
    for number, expected in ((signal.SIGTERM, "True"), (signal.SIGINT, "False")):
        process = start(daemons, tells)
        wait_for_line(process, "ready")
        process.send_signal(number)
        output, _ = process.communicate(timeout=seconds(30))
        assert output == f"hand over {expected}\n"


def test_sighup_reads_the_configuration_again(
    daemons: list[subprocess.Popen[str]], tmp_path: Path
) -> None:
    file = tmp_path / "p.toml"
    file.write_text("max_masters = 7\n")
    process = start(daemons, SERVES, "--config", str(file))
    wait_for_line(process, "ready")
    file.write_text('max_masters = 8\nlog_format = "json"\n')
    process.send_signal(signal.SIGHUP)
    assert "log_format = json" in wait_for_line(process, "reloaded: ")
    entry = json.loads(wait_for_line(process, "restart"))
    assert entry["message"] == "reloaded, but a restart is needed for: max_masters"
    file.write_text("max_masters = nine\n")
    process.send_signal(signal.SIGHUP)
    assert "is not TOML" in wait_for_line(process, "not reloaded")
    process.terminate()
    process.communicate(timeout=seconds(30))
    assert process.returncode == 0


def test_the_service_manager_hears_of_start_reload_hang_and_stop(
    daemons: list[subprocess.Popen[str]],
) -> None:
    """It hears them in this order. A hung loop sends nothing, so that the watchdog fires."""
    hangs = """
import asyncio, time
async def run(settings, stop, service):
    await asyncio.sleep(0.3)
    service.ready(types.SimpleNamespace(line=lambda: "Serving."))
    await stop.asked.wait()
    service.stopping(1)
    time.sleep(1000)
"""
    with (
        tempfile.TemporaryDirectory() as folder,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager,
    ):
        address = f"{folder}/notify"
        manager.bind(address)
        manager.settimeout(seconds(30))
        process = start(daemons, hangs, NOTIFY_SOCKET=address, WATCHDOG_USEC="300000")

        def next_but(*skipped: str) -> str:
            while (first := manager.recv(4096).decode().split("\n")[0]) in skipped:
                pass
            return first

        assert next_but() == "READY=1", "a start may take longer than the watchdog's patience"
        assert next_but() == "WATCHDOG=1"
        process.send_signal(signal.SIGHUP)
        assert next_but("WATCHDOG=1") == "RELOADING=1"
        assert next_but("WATCHDOG=1") == "READY=1"
        process.terminate()
        assert next_but("WATCHDOG=1") == "STOPPING=1"
        manager.settimeout(1.0)  # three times the watchdog's timeout
        with pytest.raises(TimeoutError):
            manager.recv(4096)


def test_a_start_that_fails_says_so_in_one_line_with_1(
    daemons: list[subprocess.Popen[str]],
) -> None:
    fails = "async def run(*_): raise OSError('port 31998 is taken: free it')"
    process = start(daemons, fails)
    _, error = process.communicate(timeout=seconds(30))
    assert process.returncode == 1
    assert error.splitlines()[-1] == "peercached: cannot start: port 31998 is taken: free it"
    assert "Traceback" not in error


def test_a_start_error_with_a_path_names_it(daemons: list[subprocess.Popen[str]]) -> None:
    fails = "async def run(*_): raise OSError(98, 'is taken', '/run/a.sock')"
    process = start(daemons, fails)
    _, error = process.communicate(timeout=seconds(30))
    assert error.splitlines()[-1] == "peercached: cannot start: /run/a.sock: is taken"


def test_a_bug_while_running_leaves_a_traceback_and_1(
    daemons: list[subprocess.Popen[str]],
) -> None:
    fails = """
async def run(_, stop, service):
    service.ready(types.SimpleNamespace(line=str))
    raise KeyError('oops')
"""
    process = start(daemons, fails)
    _, error = process.communicate(timeout=seconds(30))
    assert process.returncode == 1
    assert "Traceback" in error
    assert "oops" in error.splitlines()[-1]


def test_json_logs_are_json_from_the_first_line(daemons: list[subprocess.Popen[str]]) -> None:
    process = start(daemons, SERVES, "--log-format", "json")
    wait_for_line(process, "ready")
    process.terminate()
    _, error = process.communicate(timeout=seconds(30))
    assert [json.loads(line)["level"] for line in error.splitlines()] == ["info", "info"]


def test_the_given_keys_are_in_the_log(daemons: list[subprocess.Popen[str]]) -> None:
    process = start(daemons, SERVES, "--max-masters", "11")
    assert "(option --max-masters)" in wait_for_line(process, "max_masters = 11")


_INTERRUPTED_IMPORT = """
import os, signal, sys
from peercached.cli import entry

class CtrlC:
    def find_spec(self, name, *_):
        if name == sys.argv[2]:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, CtrlC())
getattr(entry, sys.argv[1])()
"""


@pytest.mark.parametrize(
    ("function", "module"), [("main", "peercached.cli.daemon"), ("ctl", "peercached.cli.ctl")]
)
def test_ctrl_c_during_the_imports_leaves_no_traceback(function: str, module: str) -> None:
    command = [sys.executable, "-c", _INTERRUPTED_IMPORT, function, module]
    done = subprocess.run(command, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (-signal.SIGINT, b"")


def test_config_needs_no_data_plane() -> None:
    script = (
        "import sys; sys.modules['peercached._native'] = sys.modules['peercached.run'] = None; "
        "sys.argv[1:] = ['config', '--check']; from peercached.cli.daemon import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
