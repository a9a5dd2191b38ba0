"""What Prometheus sees of this node: `GET /metrics`, described in docs/metrics.md.

Nothing is counted here: a scrape reads the status document (admin/status.py) and the latencies,
and puts them into families. So metrics cost nothing while nobody scrapes, and never disagree with
`peercachectl status`.

all.py         all families in the order of the page
single.py      the families that are one number of the status document each: tables of them
bounded.py     labels of which there may be many: the largest few, and the others together
pool.py, disk.py, traffic.py, directory.py, cluster.py, transport.py, workers.py, security.py,
node.py
               the families, by what they tell of
latency.py     histograms
exposition.py  from families to the text that Prometheus reads
document.py    docs/metrics.md
"""
