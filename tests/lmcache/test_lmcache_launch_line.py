"""LMCache accepts the output of `peercachectl lmcache-config`."""

import argparse
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

from lmcache.v1.distributed.l2_adapters import create_l2_adapter
from lmcache.v1.distributed.l2_adapters.config import (
    add_l2_adapters_args,
    parse_args_to_l2_adapters_config,
)

from peercache_client.lmcache.settings import Settings


def run(socket_path: Path, *options: str) -> Any:
    command = [sys.executable, "-m", "peercached.cli.ctl", "--socket", str(socket_path)]
    return subprocess.run(
        [*command, "lmcache-config", *options], capture_output=True, check=False, text=True
    )


def test_the_printed_option_makes_an_adapter(tmp_path: Path) -> None:
    socket_path = tmp_path / "it's here.sock"
    wishes = {"model_revision": "2", "namespace": "staging", "tenant": 'a "quoted" one'}
    options = [f"--{name.replace('_', '-')}={value}" for name, value in wishes.items()]
    printed = run(socket_path, *options)
    assert "LMCache starts all the same" in printed.stderr, "there is no daemon yet"
    words = shlex.split(printed.stdout)
    given = add_l2_adapters_args(argparse.ArgumentParser()).parse_args(words)
    [entry] = parse_args_to_l2_adapters_config(given).adapters
    adapter: Any = create_l2_adapter(entry)
    try:
        assert adapter._settings == Settings(socket_path=str(socket_path), **wishes)  # type: ignore[arg-type]
    finally:
        adapter.close()
    alone = run(socket_path, *options, "--json")
    assert (
        parse_args_to_l2_adapters_config(argparse.Namespace(l2_adapter=[alone.stdout]))
        .adapters[0]
        .adapter_params
        == entry.adapter_params
    )


def test_text_that_the_adapter_would_refuse_is_wrong_usage(tmp_path: Path) -> None:
    refused = run(tmp_path / "d.sock", "--tenant", "a\nb")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "--tenant" in refused.stderr
