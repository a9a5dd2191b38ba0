"""Keeps the view: the nodes that are in the cluster.

cluster          the interface that the daemon uses
embedded/        masters among the nodes themselves (drives peercached.membership)
etcd/            a lease in etcd for each node
goodbye          how this node leaves its cluster
held_back        the status sentence of a node that must wait to join
status           the members in the status document
this_node        who this node is at this start
view_keeper      writes the newest view to disk, for the next start
"""
