"""These tests run inside the machine that tests/rdma/vm makes: `make test-rdma`.

Elsewhere they are not collected.
"""

import os

from harness import debian_pyverbs

if "RDMA_VM" in os.environ:
    debian_pyverbs.make_importable()
else:
    collect_ignore_glob = ["test_*.py"]
