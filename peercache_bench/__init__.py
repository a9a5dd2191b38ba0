"""Benchmarks, each shown beside the machine's limit, measured in the same run.

`peercache-bench` starts two daemons of its own on loopback and disturbs no running daemon. It
sets pages on one, reads them on both, and compares every byte. It prints each figure as a ratio to
the machine's limit: memcpy for local copies, raw loopback TCP for remote reads.

daemons.py starts the daemons, limits.py measures the machine, transfers.py the pages, rdma.py the
READs, directory.py the shard's table, and report.py prints. The product never imports this package.
"""
