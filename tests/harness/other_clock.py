"""Daemons with a wrong clock. Only their Python code sees it."""

from pathlib import Path


def launcher(folder: Path, ahead_s: int) -> list[str]:
    """A command prefix for such a daemon (harness.cluster.Daemon.launcher)."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "sitecustomize.py").write_text(
        "import time\n"
        "now_s, now_ns = time.time, time.time_ns\n"
        f"time.time = lambda: now_s() + {ahead_s}\n"
        f"time.time_ns = lambda: now_ns() + {ahead_s} * 10**9\n"
    )
    return ["env", f"PYTHONPATH={folder}"]
