"""Membership in etcd: each node keeps its key there under a lease, and watches all nodes' keys."""
