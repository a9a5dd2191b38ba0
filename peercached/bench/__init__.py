"""Benchmarks, each shown beside the machine's limit, measured in the same run.

`peercachectl bench` starts two daemons of its own on loopback and disturbs no running daemon. It
sets pages on one, reads them on both, and compares every byte. It prints each figure as a ratio to
the machine's limit: memcpy for local copies, raw loopback TCP for remote reads.

limits.py measures the machine, transfers.py the pages, directory.py the shard's table, report.py
prints.
"""
