"""Tools for tests with real processes: clusters, worker processes, hosts with their own network.

The process classes come from the demo (peercached/demo/cluster.py).
"""
