"""Drives the state machines of peercached.directory over the network.

streams          sends the records of this node to their owners
lookups          asks owners where pages are
promotes         asks holders to bring pages from their disks into memory
prefixes         how much of a prompt's beginning each node has
cluster_wide     clears a namespace on all members, and locates one key
epoch_catch_up   learns at start which namespaces were cleared while the node was away
trace            times the steps of one get
trim             drops records that this node no longer owns
status           streams and lookups in the status document
"""
