"""Pins: pages stay in a pool for a while because an operator or a worker comes back for them.

pins       finds the holders of the pages and asks them; the side of a holder that is asked
prefetch   brings pages of other nodes into this node's pool
"""
