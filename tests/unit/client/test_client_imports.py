"""An engine's process loads only the client, no module of the daemon."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import sys
before = set(sys.modules)
import peercache_client
client = peercache_client.Client("/nonexistent.sock", namespace="n")
assert not client.set(b"k", b"page")  # a miss, not an error
client.close()
new = {name.split(".")[0] for name in set(sys.modules) - before}
print(*sorted(new - set(sys.stdlib_module_names) - {"peercache_client"}))
"""


def test_the_client_imports_the_standard_library_only() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == []
