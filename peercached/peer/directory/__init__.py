"""Drives the state machines of peercached.directory over the network.

streams          the records of this node, to their owners
lookups          asks owners where pages are
promotes         asks holders to bring pages from their disks into memory
cluster_wide     clear, and the explanation of one key
epoch_catch_up   learns at start which namespaces were cleared meanwhile
trace            times the steps of one get
"""
