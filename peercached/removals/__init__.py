"""Removals that hold in the whole cluster, whoever is away: docs/consistency.md.

State without clock or network: who may still have copies (lives.py), what is under way here
(ledger.py), and the file that outlives the process (store.py). peercached/peer/removals/ carries
removals out and drives them.
"""
