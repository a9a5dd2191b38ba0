"""What tests with real processes share: clusters, worker processes, hosts with their own network.

The process classes themselves are those of the demo (peercached/demo/cluster.py).
"""
