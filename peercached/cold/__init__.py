"""The cold tier: pages in an object store, which outlive the cluster (docs/cold-tier.md).

format.py     the objects, byte by byte
sealing.py    seals of objects, and their keys
requests.py   requests to the store: threads, budget, backoff
voids.py      the store's log of removals and clears
manifests.py  fills the data plane's index from the store's manifests
reader.py     brings pages from objects into the pool
writer.py     makes objects of pages that the pool is about to evict
tier.py       all of it, as the daemon sees it
"""
