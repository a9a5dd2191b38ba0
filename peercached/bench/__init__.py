"""Figures beside the limits of the machine, taken in the same run.

`peercachectl bench` starts two daemons of its own on loopback (nothing that runs is disturbed),
sets pages on one, reads them on both, compares every byte, and prints each figure as a ratio to
what the machine can do: memcpy for local copies, raw loopback TCP for remote reads.

limits.py measures the machine, transfers.py the pages, directory.py the shard's table,
report.py prints.
"""
