"""Cluster-wide removals that hold even if nodes are away: docs/consistency.md.

State only, without clock or network. processes.py remembers which processes may still have copies.
ledger.py lists the removals under way here. store.py keeps the file that outlives the process.
peercached/peer/removals/ carries removals out and drives them.
"""
