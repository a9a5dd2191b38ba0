"""Compares a release of an engine with the one that our adapter was tested with.

    tools/engine_drift ENGINE [VERSION]           compares it with the recorded release
    tools/engine_drift ENGINE VERSION --record    records it, with a new pin in requirements.txt

ENGINE is lmcache, sglang or vllm; VERSION is the newest one unless it is given. Nothing of the
engine is run: its wheel is read. The exit code is 1 if something differs, and 3 if a name that we
use is gone or our class misses a method.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from engines import record, rules
from engines.signatures import Source

DIFFERS, BROKEN = 1, 3


def wheel_of(engine: str, version: str, folder: Path) -> Path:
    wanted = f"{engine}=={version}" if version else engine
    pip = [sys.executable, "-m", "pip", "download", "-qq", "--no-deps", "--only-binary", ":all:"]
    subprocess.run([*pip, "-d", str(folder), wanted], check=True)
    return next(folder.glob("*.whl"))


def differences(old: record.Record, new: record.Record) -> list[str]:
    lines = []
    for name in sorted(old.names.keys() & new.names.keys()):
        if old.names[name] == new.names[name]:
            continue
        was, now = old.members(name), new.members(name)
        if not was or not now:
            lines.append(f"changed   {name}: {old.names[name]} -> {new.names[name]}")
        lines += [f"gone      {name}.{member}" for member in sorted(was.keys() - now.keys())]
        lines += [f"new       {name}.{m} {now[m]}" for m in sorted(now.keys() - was.keys())]
        lines += [
            f"changed   {name}.{member}: {was[member]} -> {now[member]}"
            for member in sorted(was.keys() & now.keys())
            if was[member] != now[member]
        ]
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="engine_drift",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("engine", choices=record.ENGINES)
    parser.add_argument("version", nargs="?", default="")
    parser.add_argument("--record", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        wheel = wheel_of(args.engine, args.version, Path(made))
        version = wheel.name.split("-")[1]
        with zipfile.ZipFile(wheel) as packed:
            packed.extractall(made, [n for n in packed.namelist() if n.endswith((".py", ".so"))])
        now = record.of_source(args.engine, version, Source(Path(made)))
    broken = rules.broken(args.engine, now)
    if args.record:
        record.write(args.engine, now)
        differs = []
    else:
        was = record.read(args.engine)
        print(f"{args.engine} {version}, compared with {was.version}:")
        differs = differences(was, now)
    print("\n".join([*broken, *differs] or ["nothing that the adapter uses has changed"]))
    return BROKEN if broken else DIFFERS if differs else 0


if __name__ == "__main__":
    sys.exit(main())
