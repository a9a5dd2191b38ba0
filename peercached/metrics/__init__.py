"""The node's Prometheus metrics: `GET /metrics`, described in docs/metrics.md.

Nothing is counted here. A scrape reads the status document (admin/status.py) and the latencies, and
converts them to metric families. So metrics cost nothing between scrapes, and always agree with
`peercachectl status`.

all.py         all families in the order of the page
table.py       families, and tables of families with one number each
bounded.py     labels with many values: the first few separately, the others as one group
demand.py, pool.py, disk.py, traffic.py, directory.py, cluster.py, transport.py, workers.py,
gpus.py, security.py, node.py
               the families, by subject
latency.py     histograms
exposition.py  converts families to Prometheus' text format
document.py    generates docs/metrics.md
"""
