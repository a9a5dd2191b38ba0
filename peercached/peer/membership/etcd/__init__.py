"""Membership kept by etcd: a lease for each node, a watch for the others."""
