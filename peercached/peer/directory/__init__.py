"""Drives the state machines of peercached.directory over the network.

own_records      withdraws and drops records of this node, and waits for the followers
records          finds records of pages at other nodes
shared_epochs    takes the epochs that members tell
promotes         asks holders to bring pages from their disks into memory
prefixes         how much of a prompt's beginning each node has
epoch_catch_up   learns at start which namespaces were cleared while the node was away
status           followers in the status document
"""
