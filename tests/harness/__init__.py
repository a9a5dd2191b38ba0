"""Tools for tests with real processes: clusters, worker processes, hosts with their own network.
The demo uses its daemons and its pages, too.
"""
